# The warnings the code is kept clean of. They apply to this project only, not to one that includes it.
if(PROJECT_IS_TOP_LEVEL)
  add_compile_options(-Wall -Wextra -Wshadow)
  if(TCONV_WERROR)
    add_compile_options(-Werror)
  endif()
endif()
