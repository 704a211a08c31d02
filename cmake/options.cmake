# Build types, warnings, hardening and sanitizers, gathered in the interface target weft_flags,
# which every target of weft links.

if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "build type" FORCE)
endif()
set(WEFT_SANITIZE "" CACHE STRING "sanitizers, e.g. address,undefined or thread")
option(WEFT_WERROR "treat warnings as errors" OFF)
option(WEFT_FUZZ "build the fuzzers with libFuzzer (clang only)" OFF)

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_C_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_C_FLAGS_DEBUG "-O0 -g3")
if(WEFT_SANITIZE)
    set(CMAKE_C_FLAGS_DEBUG "-O1 -g")
endif()

# Position independent everywhere: objects serve both libraries, programs are PIE.
include(CheckPIESupported)
check_pie_supported(LANGUAGES C)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

add_library(weft_flags INTERFACE)
# The same bits always: no contraction or reassociation is left to the compiler.
target_compile_options(weft_flags INTERFACE
    -ffp-contract=off -fno-math-errno -fno-trapping-math
    -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes
    $<$<C_COMPILER_ID:GNU>:-Wno-format-truncation> # text is cut at its cap on purpose
    $<$<BOOL:${WEFT_WERROR}>:-Werror>
    -fstack-protector-strong)
set(WEFT_NO_UNDEFINED -Wl,-z,defs)
target_link_options(weft_flags INTERFACE -Wl,-z,relro -Wl,-z,now -Wl,--as-needed)

if(WEFT_SANITIZE)
    set(sanitize -fsanitize=${WEFT_SANITIZE} -fno-sanitize-recover=all)
    target_compile_options(weft_flags INTERFACE ${sanitize} -fno-omit-frame-pointer)
    target_link_options(weft_flags INTERFACE ${sanitize})
    set(WEFT_NO_UNDEFINED "") # clang leaves the sanitizer runtime to the program
else()
    # Some compilers predefine another value; ours is the one that holds.
    target_compile_options(weft_flags INTERFACE
        $<$<CONFIG:Release>:-U_FORTIFY_SOURCE$<SEMICOLON>-D_FORTIFY_SOURCE=2>)
endif()
if(WEFT_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID MATCHES Clang)
        message(FATAL_ERROR "WEFT_FUZZ needs clang: configure with -DCMAKE_C_COMPILER=clang")
    endif()
    target_compile_options(weft_flags INTERFACE -fsanitize=fuzzer-no-link)
    target_link_options(weft_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
