# What weft links. WEFT_LINK_LIBRARIES is the list for the library; the installed package finds
# the same ones again (cmake/weftConfig.cmake.in) for users of the static library.

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(jansson REQUIRED IMPORTED_TARGET jansson)
find_package(ZLIB)
set(WEFT_ONEDNN AUTO CACHE STRING "use oneDNN: AUTO (when its headers are found), ON or OFF")
set_property(CACHE WEFT_ONEDNN PROPERTY STRINGS AUTO ON OFF)

set(WEFT_LINK_LIBRARIES PkgConfig::jansson Threads::Threads m ${CMAKE_DL_LIBS})
set(WEFT_PC_REQUIRES jansson)
set(WEFT_PC_LIBS "-pthread -lm")

set(WEFT_ZLIB "")
if(ZLIB_FOUND)
    set(WEFT_ZLIB ZLIB::ZLIB)
    list(APPEND WEFT_LINK_LIBRARIES ZLIB::ZLIB)
    list(APPEND WEFT_PC_REQUIRES zlib)
    add_compile_definitions(WF_HAVE_ZLIB)
else()
    message(STATUS "zlib not found: compressed files will not be read")
endif()

# oneDNN is not linked: one file is compiled against its headers and loads the library on demand.
if(NOT WEFT_ONEDNN STREQUAL "OFF")
    find_package(oneDNN MODULE)
    if(oneDNN_FOUND)
        set_source_files_properties(src/kernels/cpu/onednn.c PROPERTIES
            COMPILE_DEFINITIONS WF_HAVE_ONEDNN INCLUDE_DIRECTORIES "${oneDNN_INCLUDE_DIR}")
    elseif(WEFT_ONEDNN STREQUAL "ON")
        message(FATAL_ERROR "oneDNN's headers not found (package libdnnl-dev, or -Ddnnl_DIR=...)")
    endif()
endif()
