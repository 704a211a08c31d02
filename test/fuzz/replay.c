/* replay.c - runs a fuzzer over files instead of searching for new ones.
 *
 * Linked with each fuzzer in ordinary builds: every file named on the command line, and every file
 * of every folder named there, is one input. The empty input is always tried first. A folder that
 * does not exist holds nothing; a file that cannot be read is a failure. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define INPUT_CAP_BYTES (64u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* An exact copy on the heap, so that the address sanitizer sees any read past the end. */
static int replay_file(const char *path, long long size_bytes)
{
    int failed = 1;
    uint8_t *data = NULL;
    FILE *f = NULL;

    if (size_bytes < 0 || size_bytes > INPUT_CAP_BYTES) {
        fprintf(stderr, "%s: %lld bytes is more than an input may have\n", path, size_bytes);
        return 1;
    }
    f = fopen(path, "rb");
    data = malloc(size_bytes ? (size_t)size_bytes : 1);
    if (!f || !data || fread(data, 1, (size_t)size_bytes, f) != (size_t)size_bytes) {
        perror(path);
        goto out;
    }
    LLVMFuzzerTestOneInput(data, (size_t)size_bytes);
    failed = 0;
out:
    free(data);
    if (f)
        fclose(f);
    return failed;
}

static int replay_dir(const char *path, int *n_files)
{
    int n_failed = 0;
    struct dirent *entry;
    DIR *dir = opendir(path);

    if (!dir) {
        perror(path);
        return 1;
    }
    while ((entry = readdir(dir))) {
        char file[4096];
        struct stat info;

        if (entry->d_name[0] == '.')
            continue;
        snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        if (stat(file, &info)) {
            perror(file);
            n_failed++;
        } else if (S_ISREG(info.st_mode)) {
            n_failed += replay_file(file, (long long)info.st_size);
            ++*n_files;
        }
    }
    closedir(dir);
    return n_failed;
}

int main(int argc, char **argv)
{
    int n_failed = 0, n_files = 0;

    LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    for (int i = 1; i < argc; i++) {
        struct stat info;

        if (stat(argv[i], &info))
            continue;
        if (S_ISDIR(info.st_mode)) {
            n_failed += replay_dir(argv[i], &n_files);
        } else {
            n_failed += replay_file(argv[i], (long long)info.st_size);
            n_files++;
        }
    }
    printf("%d inputs replayed, %d unreadable\n", n_files, n_failed);
    return n_failed ? 1 : 0;
}
