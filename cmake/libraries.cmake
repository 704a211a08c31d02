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
set(WEFT_PC_TARGETS jansson) # PkgConfig:: names, in the order of their modules in WEFT_PC_MODULES
set(WEFT_PC_MODULES jansson)
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

# Optional readers. Each found library defines WF_HAVE_X for the data layer and is linked; SQLite and libpq bring much
# with them, so only their headers are used and the library is loaded when a query needs it (src/data/dl.c).
function(weft_optional name module linked what)
    pkg_check_modules(${name} IMPORTED_TARGET ${module})
    string(TOUPPER ${name} upper)
    if(NOT ${name}_FOUND)
        message(STATUS "${module} not found: ${what}")
        return()
    endif()
    add_compile_definitions(WF_HAVE_${upper})
    if(linked)
        list(APPEND WEFT_LINK_LIBRARIES PkgConfig::${name})
        list(APPEND WEFT_PC_REQUIRES ${module})
        list(APPEND WEFT_PC_TARGETS ${name})
        list(APPEND WEFT_PC_MODULES ${module})
    else()
        include_directories(SYSTEM ${${name}_INCLUDE_DIRS})
    endif()
    foreach(list LINK_LIBRARIES PC_REQUIRES PC_TARGETS PC_MODULES)
        set(WEFT_${list} ${WEFT_${list}} PARENT_SCOPE)
    endforeach()
endfunction()
weft_optional(zstd libzstd ON ".zst files will not be read")
weft_optional(jpeg libjpeg ON "JPEG images will not be read")
weft_optional(png libpng ON "PNG images will not be read")
weft_optional(sqlite sqlite3 OFF "SQLite files will not be read")
weft_optional(pq libpq OFF "PostgreSQL tables will not be read")

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
