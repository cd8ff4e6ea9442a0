# Texts that become strings of the library: the kernels' sources, which are compiled at run time on the user's
# machine, and the frame of the files they are exported in.
function(tconv_embed folder pattern function)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${folder}/${pattern})
  set(output ${PROJECT_BINARY_DIR}/generated/${function}.cpp)
  set(script ${PROJECT_SOURCE_DIR}/cmake/EmbedTexts.cmake)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DFOLDER=${PROJECT_SOURCE_DIR}/${folder} -DPATTERN=${pattern} -DFUNCTION=${function}
            -DOUTPUT=${output} -P ${script}
    DEPENDS ${files} ${script}
    COMMENT "Embedding ${folder}"
    VERBATIM)
  set(TCONV_DEVICE_SOURCES ${TCONV_DEVICE_SOURCES} ${output} PARENT_SCOPE)
endfunction()

tconv_embed(src/cuda/kernels *.cuh device_sources)
tconv_embed(src/cuda/export *.in export_templates)
