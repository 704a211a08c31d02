# Device code for NVIDIA's GPUs. nvcc compiles it where it is installed; the library holds it as bytes
# and opens the driver and cuBLASLt at run time, so that nothing of CUDA is linked. Without nvcc the
# build is complete but for this device.

set(WEFT_CUDA auto CACHE STRING "kernels for NVIDIA GPUs: auto, on, off")
set(WEFT_CUDA_ARCHS "" CACHE STRING "compute capabilities to compile for, e.g. 80;90; the last as PTX, too")
set_property(CACHE WEFT_CUDA PROPERTY STRINGS auto on off)

set(WEFT_HAVE_CUDA OFF)
if(WEFT_CUDA STREQUAL "off" OR (WEFT_CUDA STREQUAL "auto" AND CMAKE_CROSSCOMPILING))
    return()
endif()
find_program(WEFT_NVCC nvcc HINTS /usr/local/cuda/bin /opt/cuda/bin)
if(WEFT_NVCC)
    file(REAL_PATH ${WEFT_NVCC} nvcc)
    cmake_path(GET nvcc PARENT_PATH cuda_bin)
    cmake_path(GET cuda_bin PARENT_PATH cuda_home)
    find_path(WEFT_CUDA_INCLUDE cublasLt.h HINTS ${cuda_home}/include
              ${cuda_home}/targets/x86_64-linux/include)
endif()
if(NOT WEFT_NVCC OR NOT WEFT_CUDA_INCLUDE)
    if(WEFT_CUDA STREQUAL "on")
        message(FATAL_ERROR "WEFT_CUDA=on needs nvcc and cublasLt.h (package cuda-toolkit)")
    endif()
    message(STATUS "nvcc or cublasLt.h not found: no kernels for GPUs")
    return()
endif()

set(archs ${WEFT_CUDA_ARCHS})
if(NOT archs AND WEFT_SANITIZE)
    set(archs 90)
elseif(NOT archs)
    set(archs 80 90)
endif()
set(gencode)
foreach(arch IN LISTS archs)
    list(APPEND gencode -gencode arch=compute_${arch},code=sm_${arch})
    set(last ${arch})
endforeach()
list(APPEND gencode -gencode arch=compute_${last},code=compute_${last})

set(WEFT_HAVE_CUDA ON)
set(cuda_fatbin ${PROJECT_BINARY_DIR}/kernels.fatbin)
add_custom_command(
    OUTPUT ${cuda_fatbin} ${cuda_fatbin}.names
    COMMAND ${PROJECT_SOURCE_DIR}/cmake/cuda-kernels.sh ${cuda_fatbin}
            ${PROJECT_SOURCE_DIR}/src/kernels/cuda/names.def
            ${WEFT_NVCC} -fatbin -std=c++17 -O3 -fmad=false -diag-suppress 177 -Xfatbin -compress-all ${gencode}
            -I${PROJECT_SOURCE_DIR}/src -I${PROJECT_SOURCE_DIR}/include
            -MD -MT ${cuda_fatbin} -MF ${cuda_fatbin}.d
            ${PROJECT_SOURCE_DIR}/src/kernels/cuda/kernels.cu
    DEPENDS ${PROJECT_SOURCE_DIR}/src/kernels/cuda/kernels.cu
            ${PROJECT_SOURCE_DIR}/src/kernels/cuda/names.def
            ${PROJECT_SOURCE_DIR}/cmake/cuda-kernels.sh
    DEPFILE ${cuda_fatbin}.d
    COMMENT "Compiling kernels for GPUs (${archs})" VERBATIM)

file(GLOB cuda_sources CONFIGURE_DEPENDS src/kernels/cuda/*.c)
set(cuda_dev ${PROJECT_SOURCE_DIR}/src/kernels/cuda/dev)
# Kernels for 9.0 and later wait inside for the previous one (dev/gpu.h), so that launches can overlap.
set(overlap 0)
if(90 IN_LIST archs)
    set(overlap 1)
endif()
set(WEFT_CUDA_OPTIONS -DWF_HAVE_CUDA=1 -DWF_CUDA_OVERLAP=${overlap} -isystem ${WEFT_CUDA_INCLUDE})
set_source_files_properties(${cuda_sources} PROPERTIES COMPILE_OPTIONS "${WEFT_CUDA_OPTIONS}")
# The one file that includes the compiled kernels is a target of its own (CMakeLists.txt): every other
# file is compiled while nvcc works.
set(WEFT_CUDA_BIN ${PROJECT_SOURCE_DIR}/src/kernels/cuda/bin.c)
set_source_files_properties(${WEFT_CUDA_BIN} PROPERTIES
    OBJECT_DEPENDS
    "${cuda_fatbin};${cuda_fatbin}.names;${cuda_dev}/rtc.inl;${cuda_dev}/math.inl;${cuda_dev}/ew_fn.inl"
    COMPILE_OPTIONS
    "${WEFT_CUDA_OPTIONS};-DWF_CUDA_FATBIN=\"${cuda_fatbin}\";-DWF_CUDA_SOURCES=\"${cuda_dev}\"")
