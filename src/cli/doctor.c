/* doctor.c - weft version, weft doctor: what is built in, what the machine has, what is missing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <weft/sys/device.h>
#include <weft/sys/machine.h>
#include <weft/sys/net.h>

#include "cli.h"

static int run_version(int argc, char **argv)
{
    static const struct flag none[] = {{NULL, FLAG_BOOL, NULL, NULL, NULL}};
    int n = parse_flags(&command_version, none, argc, argv);

    if (n < 0)
        return n == -2 ? EXIT_DONE : EXIT_USAGE;
    printf("weft %s\n", weft_version());
    return EXIT_DONE;
}

const struct command command_version = {
    .name = "version", .args = "", .summary = "print the version", .run = run_version};

static void check_file(const char *what, const char *path, const char *package)
{
    struct stat s;

    if (stat(path, &s) == 0)
        printf("  %-22s %s\n", what, path);
    else
        printf("  %-22s missing: apt install %s\n", what, package);
}

#ifdef WF_HAVE_ZLIB
#define HAS_ZLIB true
#else
#define HAS_ZLIB false
#endif
#ifdef WF_HAVE_ZSTD
#define HAS_ZSTD true
#else
#define HAS_ZSTD false
#endif
#ifdef WF_HAVE_JPEG
#define HAS_JPEG true
#else
#define HAS_JPEG false
#endif
#ifdef WF_HAVE_PNG
#define HAS_PNG true
#else
#define HAS_PNG false
#endif
#ifdef WF_HAVE_SQLITE
#define HAS_SQLITE true
#else
#define HAS_SQLITE false
#endif
#ifdef WF_HAVE_PQ
#define HAS_PQ true
#else
#define HAS_PQ false
#endif
#ifdef WF_HAVE_CURL
#define HAS_CURL true
#else
#define HAS_CURL false
#endif

struct part {
    const char *what, *package, *file; /* file: loaded when something needs it; NULL: linked */
    bool built;
};

static void check_part(const struct part *p)
{
    void *lib = p->file ? dlopen(p->file, RTLD_LAZY) : NULL;

    if (!p->built)
        printf("  %-22s not built in: apt install %s and build again\n", p->what, p->package);
    else if (p->file && !lib)
        printf("  %-22s missing: apt install %s (%s)\n", p->what, p->package, p->file);
    else
        printf("  %-22s %s\n", p->what, p->file ? p->file : "built in");
    if (lib)
        dlclose(lib);
}

/* Where chiefs write. */
static void check_stores(void)
{
    static const struct part etcd = {"etcd", "libcurl4-openssl-dev", "libcurl.so.4", HAS_CURL};

    printf("\nstores of a job's chiefs\n  %-22s built in\n", "directory");
    check_part(&etcd);
}

/* File readers that a build may lack, and the libraries that some of them load. */
static void check_readers(void)
{
    static const struct part readers[] = {
        {"gzip, zlib", "zlib1g-dev", NULL, HAS_ZLIB},
        {"zstd", "libzstd-dev", NULL, HAS_ZSTD},
        {"JPEG", "libjpeg-dev", NULL, HAS_JPEG},
        {"PNG", "libpng-dev", NULL, HAS_PNG},
        {"SQLite", "libsqlite3-dev", "libsqlite3.so.0", HAS_SQLITE},
        {"PostgreSQL", "libpq-dev", "libpq.so.5", HAS_PQ},
    };

    printf("\ndata readers\n");
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++)
        check_part(&readers[i]);
}

/* Each is tried. */
static void check_transports(weft_ctx *ctx)
{
    char folder[] = "/tmp/weft-doctor-XXXXXX";
    weft_net_part p = {.size = sizeof p};

    printf("\ntransports between processes\n");
    if (!mkdtemp(folder)) {
        printf("  cannot be tried: no directory can be made in /tmp\n");
        return;
    }
    for (int i = 0; weft_net_part_at(ctx, folder, i, &p) == WEFT_OK; i++)
        printf("  %-22s %s%s\n", p.name, p.works ? "" : "does not work: ", p.text);
    rmdir(folder);
}

/* Devices with memory of their own: how many there are, or what is missing. */
static void check_drivers(weft_ctx *ctx)
{
    for (int i = 0;; i++) {
        const char *kind = NULL;
        int n = 0;
        weft_status st = weft_ctx_driver(ctx, i, &kind, &n);

        if (!kind)
            return;
        if (st)
            printf("  %-22s none: %s\n", kind, weft_error());
        else
            printf("  %-22s %d\n", kind, n);
    }
}

static int run_doctor(int argc, char **argv)
{
    static const struct flag none[] = {{NULL, FLAG_BOOL, NULL, NULL, NULL}};
    int n = parse_flags(&command_doctor, none, argc, argv);
    char name[128];
    struct utsname u;
    weft_ctx *ctx;
    weft_status st;

    if (n < 0)
        return n == -2 ? EXIT_DONE : EXIT_USAGE;
    st = weft_ctx_new(NULL, &ctx);
    if (st)
        return fail_status(st, "doctor");
    printf("weft %s\n\nbuilt in\n", weft_version());
    for (int i = 0; weft_build_feature(i); i++)
        printf("  %s\n", weft_build_feature(i));
    weft_cpu_name(ctx, name, sizeof name);
    printf("\nmachine\n  %-22s %s\n", "cpu", name);
    if (uname(&u) == 0)
        printf("  %-22s %s %s, %s\n", "system", u.sysname, u.release, u.machine);
    printf("  %-22s %d\n  %-22s %s\n", "threads", weft_ctx_threads(ctx), "simd level",
           weft_simd_name(weft_ctx_simd(ctx)));
    printf("  %-22s %.1f GFLOP/s\n", "multiply-add peak", weft_fma_peak(ctx, 0.2) / 1e9);
    for (int i = 0; i < weft_ctx_n_devices(ctx); i++) {
        weft_device d = {.size = sizeof d};

        if (!weft_ctx_device(ctx, i, &d))
            printf("  %-22s %s: %d core%s, %d thread%s\n", i ? "" : "devices", d.name, d.cores,
                   d.cores == 1 ? "" : "s", d.threads, d.threads == 1 ? "" : "s");
    }
    check_drivers(ctx);
    check_readers();
    check_transports(ctx);
    check_stores();
    printf("\ndata\n");
    check_file("Fashion-MNIST", "/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz",
               "dataset-fashion-mnist");
    weft_ctx_free(ctx);
    return EXIT_DONE;
}

const struct command command_doctor = {
    .name = "doctor",
    .args = "",
    .summary = "print what is built in, what the machine has, and which packages are missing",
    .run = run_doctor,
};
