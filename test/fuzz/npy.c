/* npy.c - the reader of .npy files, on anything. What reads must be written and read back as itself. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../src/cli/cli.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The command's messages are not of interest here. */
int fail(int code, const char *fmt, ...)
{
    (void)fmt;
    return code;
}

#include "../../src/cli/npy.c"

static int file_of(const uint8_t *data, size_t size, char path[64])
{
    int fd = memfd_create("npy", 0);

    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_tensor a = {.data = NULL}, b = {.data = NULL};
    char path[64], copy[64];
    int fd = file_of(data, size, path), to = file_of(data, 0, copy);

    if (npy_read(path, &a) == EXIT_DONE) {
        if (npy_write(copy, &a) != EXIT_DONE || npy_read(copy, &b) != EXIT_DONE ||
            a.dtype != b.dtype || a.rank != b.rank ||
            weft_tensor_bytes(&a) != weft_tensor_bytes(&b) ||
            memcmp(a.data, b.data, (size_t)weft_tensor_bytes(&a)))
            abort();
    }
    free(a.data);
    free(b.data);
    close(fd);
    close(to);
    return 0;
}
