# Finds oneDNN 2.x or 3.x for bench/onednn: oneDNN_INCLUDE_DIR, oneDNN_LIBRARY and oneDNN_VERSION.
# Looks in dnnl_DIR (the folder of dnnl-config.cmake, or a prefix), CMAKE_PREFIX_PATH and the
# system. oneDNN's own package file is not used: it pulls in whatever its builder had (OpenCL, TBB).

set(hints)
if(dnnl_DIR)
    list(APPEND hints ${dnnl_DIR} ${dnnl_DIR}/../../.. ${dnnl_DIR}/../../../..)
endif()
find_path(oneDNN_INCLUDE_DIR oneapi/dnnl/dnnl.h HINTS ${hints} PATH_SUFFIXES include)
find_library(oneDNN_LIBRARY dnnl HINTS ${hints} PATH_SUFFIXES lib)
if(oneDNN_INCLUDE_DIR)
    set(oneDNN_VERSION "")
    foreach(part MAJOR MINOR PATCH)
        file(STRINGS ${oneDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h line
             REGEX "#define DNNL_VERSION_${part} ")
        string(REGEX REPLACE ".*${part} +" "" line "${line}")
        string(APPEND oneDNN_VERSION "${line}.")
    endforeach()
    string(REGEX REPLACE "\\.$" "" oneDNN_VERSION "${oneDNN_VERSION}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(oneDNN REQUIRED_VARS oneDNN_INCLUDE_DIR oneDNN_LIBRARY
                                  VERSION_VAR oneDNN_VERSION)
mark_as_advanced(oneDNN_INCLUDE_DIR oneDNN_LIBRARY)
