# libtconv itself, what is installed of it, and how others find it: a CMake package and a pkg-config file.
add_library(tconv $<TARGET_OBJECTS:tconv_objects>)
add_library(tconv::tconv ALIAS tconv)
target_include_directories(
  tconv INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(tconv INTERFACE cxx_std_20)
target_link_libraries(tconv PRIVATE hwy::hwy Threads::Threads ${CMAKE_DL_LIBS})

# Before 1.0 a minor version may break the ABI, so the SONAME carries it.
set_target_properties(
  tconv PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
                   LINKER_LANGUAGE CXX)
if(BUILD_SHARED_LIBS AND UNIX AND NOT APPLE)
  # Hidden visibility does not hide instantiations of standard templates; the map does.
  set(map ${PROJECT_SOURCE_DIR}/cmake/libtconv.map)
  target_link_options(tconv PRIVATE -Wl,--version-script=${map} -Wl,--as-needed)
  set_target_properties(tconv PROPERTIES LINK_DEPENDS ${map})
  if(NOT TCONV_SANITIZE)
    target_link_options(tconv PRIVATE -Wl,--no-undefined)
  endif()
endif()

if(NOT TCONV_INSTALL)
  return()
endif()
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tconv)

install(TARGETS tconv EXPORT tconvTargets COMPONENT library)
install(DIRECTORY include/tconv TYPE INCLUDE COMPONENT library)
install(EXPORT tconvTargets NAMESPACE tconv:: DESTINATION ${package_dir} COMPONENT library)

configure_package_config_file(cmake/tconvConfig.cmake.in tconvConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(tconvConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tconvConfig.cmake ${PROJECT_BINARY_DIR}/tconvConfigVersion.cmake
        DESTINATION ${package_dir} COMPONENT library)

# The file finds its prefix from its own place, so an installed tree can be moved; this is the way there.
file(RELATIVE_PATH TCONV_PC_TO_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/tconv.pc.in tconv.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tconv.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT library)
