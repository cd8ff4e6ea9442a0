/* tconv's C ABI: the functions of tconv.hpp for every language that can call C.
 *
 * Every function that can fail returns a tconv_status. On anything but TCONV_OK, tconv_last_error()
 * returns a message that says what was wrong with which argument; it belongs to the calling thread
 * and lives until that thread's next failing call. No exception crosses this boundary.
 *
 * tconv_layer_init() fills a layer with defaults; of tconv_run_options and tconv_tensor zeros are the
 * defaults. Code that begins with those keeps its meaning when it is compiled against a version that
 * has more fields. */
#ifndef TCONV_H
#define TCONV_H

#include <stddef.h>
#include <stdint.h>

#include "tconv/export.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tconv_status {
  TCONV_OK = 0,
  TCONV_INVALID_ARGUMENT = 1,
  TCONV_UNSUPPORTED = 2,
  TCONV_OUT_OF_MEMORY = 3,
  TCONV_DEVICE_ERROR = 4,
  TCONV_INTERNAL_ERROR = 5
} tconv_status;

typedef enum tconv_dtype { TCONV_F32 = 0, TCONV_F64 = 1, TCONV_F16 = 2, TCONV_BF16 = 3 } tconv_dtype;
typedef enum tconv_precision { TCONV_FP32 = 0, TCONV_TF32 = 1 } tconv_precision;
typedef enum tconv_layout { TCONV_CHANNELS_FIRST = 0, TCONV_CHANNELS_LAST = 1 } tconv_layout;
typedef enum tconv_device_kind { TCONV_CPU = 0, TCONV_CUDA = 1 } tconv_device_kind;
typedef enum tconv_pass {
  TCONV_FORWARD = 0,
  TCONV_GRAD_INPUT = 1,
  TCONV_GRAD_WEIGHT = 2,
  TCONV_GRAD_BIAS = 3
} tconv_pass;

/* A layer; the first `dims` entries of each array are used. Enumerations are passed as plain ints and
 * checked. */
typedef struct tconv_layer {
  int dims;
  int64_t in_channels, out_channels;
  int64_t kernel[3], stride[3], padding[3], output_padding[3], dilation[3];
  int64_t groups;
  int bias;
  int dtype, precision, layout;
} tconv_layer;

#define TCONV_MAX_RANK 5

/* A view: strides count elements. Outputs are written through `data`, inputs never are. */
typedef struct tconv_tensor {
  void* data;
  int dtype;
  int rank;
  int64_t sizes[TCONV_MAX_RANK];
  int64_t strides[TCONV_MAX_RANK];
} tconv_tensor;

/* Threads of the caller. parallel_for must call task(task_object, i) once for each i in [0, count) and
 * return when all have returned. */
typedef struct tconv_executor {
  void* object;
  int (*concurrency)(void* object);
  void (*parallel_for)(void* object, int64_t count, void (*task)(void* task_object, int64_t index),
                       void* task_object);
} tconv_executor;

typedef struct tconv_run_options {
  void* workspace;
  size_t workspace_bytes;
  const tconv_executor* executor; /* null: the process's default pool */
  const void* packed_weight;      /* null: packed in the workspace */
  void* stream;                   /* CUDA stream */
} tconv_run_options;

/* Bytes of the structs, for languages that declare them again: a library of another version may have others. */
TCONV_API size_t tconv_layer_bytes(void);
TCONV_API size_t tconv_tensor_bytes(void);
TCONV_API size_t tconv_run_options_bytes(void);

typedef struct tconv_plan tconv_plan;
typedef struct tconv_binding tconv_binding;

TCONV_API const char* tconv_version(void);
TCONV_API const char* tconv_last_error(void);

TCONV_API void tconv_layer_init(tconv_layer* layer);
TCONV_API tconv_status tconv_layer_validate(const tconv_layer* layer);
TCONV_API tconv_status tconv_output_size(const tconv_layer* layer, const int64_t* input, int64_t* output);
TCONV_API tconv_status tconv_output_padding_for(const tconv_layer* layer, const int64_t* input,
                                                const int64_t* output, int64_t* output_padding);

TCONV_API tconv_status tconv_plan_create(const tconv_layer* layer, int device_kind, int device_index,
                                         tconv_plan** plan);
TCONV_API void tconv_plan_destroy(tconv_plan* plan);
/* A packed weight begins at a multiple of 256 bytes on a GPU, of 8 on a CPU: cudaMalloc and malloc see to that. */
TCONV_API tconv_status tconv_packed_weight_bytes(const tconv_plan* plan, int pass, size_t* bytes);
TCONV_API tconv_status tconv_pack_weight(const tconv_plan* plan, int pass, const tconv_tensor* weight,
                                         void* packed, const tconv_run_options* options);

/* A binding keeps what it needs of its plan: the plan may be destroyed first. */
TCONV_API tconv_status tconv_bind(const tconv_plan* plan, int64_t batch, const int64_t* input,
                                  tconv_binding** binding);
TCONV_API void tconv_binding_destroy(tconv_binding* binding);
/* `workers`: 0 for as many as the default pool has. A run that is given a packed weight needs no room to pack one:
 * the second function says what it needs. */
TCONV_API tconv_status tconv_workspace_bytes(const tconv_binding* binding, int pass, int workers, size_t* bytes);
TCONV_API tconv_status tconv_workspace_bytes_packed(const tconv_binding* binding, int pass, int workers,
                                                    size_t* bytes);

/* `bias` may be null. `options` may be null where no workspace is needed. */
TCONV_API tconv_status tconv_forward(const tconv_binding* binding, const tconv_tensor* x,
                                     const tconv_tensor* weight, const tconv_tensor* bias, const tconv_tensor* y,
                                     const tconv_run_options* options);
TCONV_API tconv_status tconv_grad_input(const tconv_binding* binding, const tconv_tensor* gy,
                                        const tconv_tensor* weight, const tconv_tensor* gx,
                                        const tconv_run_options* options);
TCONV_API tconv_status tconv_grad_weight(const tconv_binding* binding, const tconv_tensor* x,
                                         const tconv_tensor* gy, const tconv_tensor* gw,
                                         const tconv_run_options* options);
TCONV_API tconv_status tconv_grad_bias(const tconv_binding* binding, const tconv_tensor* gy,
                                       const tconv_tensor* gb, const tconv_run_options* options);

/* The layer as a Python file with its CUDA kernels (tconv::export_layer). `name` and `constructor`, a list of
 * parameters with commas between them, may be null. Writes at most *bytes bytes to `text`, which may be null where
 * *bytes is 0, and sets *bytes to what the text with its final zero needs. */
TCONV_API tconv_status tconv_export(const tconv_layer* layer, int64_t batch, const int64_t* input,
                                    const char* name, const char* constructor, char* text, size_t* bytes);

#ifdef __cplusplus
}
#endif

#endif
