# Cross compilation for 64-bit ARM with Debian's gcc-aarch64-linux-gnu (tools/setup cross).
# With the libraries of that architecture installed (libjansson-dev:arm64 and so on) everything
# links and the tests run under qemu-user (-DWEFT_TESTS=ON); without them the headers of this machine
# serve to compile the static library.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
if(EXISTS /usr/lib/aarch64-linux-gnu/pkgconfig/jansson.pc)
    set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
    set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)
    set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig)
else()
    # After the cross compiler's own, so that only headers it lacks come from here.
    set(CMAKE_C_FLAGS_INIT "-idirafter /usr/include")
endif()
