/* The README's example in C: the same layer through the C ABI, with the same result. */
#include <stdio.h>
#include <stdlib.h>
#include <tconv/tconv.h>

static void check(tconv_status status) {
  if (status != TCONV_OK) {
    fprintf(stderr, "%s\n", tconv_last_error());
    exit(1);
  }
}

int main(void) {
  float x[] = {1, 2}, weight[] = {1, 10, 100}, y[5];
  const tconv_tensor x_view = {x, TCONV_F32, 3, {1, 1, 2}, {2, 2, 1}};
  const tconv_tensor weight_view = {weight, TCONV_F32, 3, {1, 1, 3}, {3, 3, 1}};
  const tconv_tensor y_view = {y, TCONV_F32, 3, {1, 1, 5}, {5, 5, 1}};
  const int64_t input_size[] = {2};
  tconv_layer layer;
  tconv_plan* plan;
  tconv_binding* binding;
  tconv_run_options options = {0};

  tconv_layer_init(&layer);
  layer.kernel[0] = 3;
  layer.stride[0] = 2;
  check(tconv_plan_create(&layer, TCONV_CPU, 0, &plan));
  check(tconv_bind(plan, 1, input_size, &binding));
  check(tconv_workspace_bytes(binding, TCONV_FORWARD, 1, &options.workspace_bytes));
  options.workspace = malloc(options.workspace_bytes);
  check(tconv_forward(binding, &x_view, &weight_view, NULL, &y_view, &options));
  printf("%g %g %g %g %g\n", y[0], y[1], y[2], y[3], y[4]);

  free(options.workspace);
  tconv_binding_destroy(binding);
  tconv_plan_destroy(plan);
  return 0;
}
