/* bench_mpi.c - what Open MPI takes for the messages of weft bench net.
 *
 * The command starts itself twice under mpirun. Each rank loads Open MPI's library when it runs, so
 * weft is built without it. MPI's constants are the addresses of variables in that library. */
#define _GNU_SOURCE
#include "bench_mpi.h"

#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

enum { MAX_BLOCKS = 1000, SMALL = 64, STREAMS = 2, TRIPS = 5000, LIMIT_S = 120 };

struct mpi {
    int (*init)(int *argc, char ***argv);
    int (*finalize)(void);
    int (*version)(char *text, int *n);
    int (*rank)(void *comm, int *rank);
    int (*send)(const void *p, int n, void *type, int to, int tag, void *comm);
    int (*recv)(void *p, int n, void *type, int from, int tag, void *comm, void *status);
    void *world, *byte;
    int self;
};

/* ---- one rank -------------------------------------------------------------------------------- */

static bool load(struct mpi *m)
{
    void *lib = dlopen("libmpi.so.40", RTLD_NOW | RTLD_GLOBAL);
    const struct {
        const char *name;
        void *to;
    } calls[] = {{"MPI_Init", &m->init},      {"MPI_Finalize", &m->finalize},
                 {"MPI_Comm_rank", &m->rank}, {"MPI_Get_library_version", &m->version},
                 {"MPI_Send", &m->send},      {"MPI_Recv", &m->recv},
                 {"ompi_mpi_byte", &m->byte}, {"ompi_mpi_comm_world", &m->world}};

    for (size_t i = 0; lib && i < sizeof calls / sizeof *calls; i++) {
        void *found = dlsym(lib, calls[i].name);

        if (!found)
            return false;
        memcpy(calls[i].to, &found, sizeof found);
    }
    return lib;
}

/* Each rank has its half of the cores, as weft's two processes have. */
static void use_half(int rank)
{
    cpu_set_t all, own;
    int n, k = 0;

    if (sched_getaffinity(0, sizeof all, &all) || (n = CPU_COUNT(&all)) < 2)
        return;
    CPU_ZERO(&own);
    for (int c = 0; c < CPU_SETSIZE; c++)
        if (CPU_ISSET(c, &all) && k++ * 2 / n == rank)
            CPU_SET(c, &own);
    sched_setaffinity(0, sizeof own, &own);
}

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool put(struct mpi *m, const void *p, int64_t n)
{
    return m->send(p, (int)n, m->byte, !m->self, 1, m->world) == 0;
}

static bool get(struct mpi *m, void *p, int64_t n)
{
    return m->recv(p, (int)n, m->byte, !m->self, 1, m->world, NULL) == 0;
}

/* Over shared memory every byte is written before, and read afterwards. */
static bool stream(struct mpi *m, uint64_t *p, int64_t bytes, bool touch, uint64_t *sum)
{
    char small[SMALL] = {0};
    bool ok = true;

    for (int i = 0; i < STREAMS && ok; i++) {
        if (m->self == 0) {
            for (int64_t k = 0; touch && k < bytes / 8; k++)
                p[k] = (uint64_t)(k + i);
            ok = put(m, p, bytes) && get(m, small, SMALL);
        } else {
            ok = get(m, p, bytes);
            for (int64_t k = 0; ok && touch && k < bytes / 8; k++)
                *sum += p[k];
            ok = ok && put(m, small, SMALL);
        }
    }
    return ok;
}

static bool trips(struct mpi *m)
{
    char small[SMALL] = {0};
    bool ok = true;

    for (int i = 0; i < TRIPS && ok; i++)
        ok = m->self == 0 ? put(m, small, SMALL) && get(m, small, SMALL)
                          : get(m, small, SMALL) && put(m, small, SMALL);
    return ok;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static bool write_figures(struct mpi *m, const char *file, double *streams, double *round, int n)
{
    char version[1024] = "";
    int n_version = 0;
    FILE *f = fopen(file, "w");

    if (!f)
        return false;
    m->version(version, &n_version);
    version[strcspn(version, ",\n")] = 0; /* "Open MPI v4.1.4, package: …" */
    qsort(streams, (size_t)n, sizeof *streams, ascending);
    qsort(round, (size_t)n, sizeof *round, ascending);
    fprintf(f, "%.12g %.12g %.60s\n", streams[n / 2], round[n / 2], version);
    return fclose(f) == 0;
}

int mpi_rank(const char *how)
{
    double streams[MAX_BLOCKS + 1], round[MAX_BLOCKS + 1];
    char transport[8], file[256];
    struct mpi m = {.self = 0};
    uint64_t *p, sum = 0;
    long long bytes;
    int blocks;
    bool ok;

    prctl(PR_SET_PDEATHSIG, SIGKILL); /* with mpirun */
    if (sscanf(how, "%7[a-z],%lld,%d,%255s", transport, &bytes, &blocks, file) != 4 || bytes < 1 ||
        bytes > INT32_MAX || blocks < 1 || blocks > MAX_BLOCKS || !load(&m) || m.init(NULL, NULL) ||
        m.rank(m.world, &m.self))
        return EXIT_FAILED;
    p = calloc((size_t)bytes / 8 + 1, 8);
    use_half(m.self);
    ok = p;
    for (int i = 0; i <= blocks && ok; i++) { /* the first is the warm-up */
        double start = now_s();

        ok = stream(&m, p, bytes, !strcmp(transport, "shm"), &sum);
        streams[i] = (now_s() - start) / STREAMS;
        start = now_s();
        ok = ok && trips(&m);
        round[i] = (now_s() - start) / TRIPS;
    }
    if (ok && m.self == 0)
        ok = write_figures(&m, file, streams + 1, round + 1, blocks);
    free(p);
    m.finalize();
    /* Open MPI keeps memory until its process ends; a leak checker would call that our failure. */
    _exit(ok && sum != 1 ? EXIT_DONE : EXIT_FAILED);
}

/* ---- both of them ---------------------------------------------------------------------------- */

bool mpi_has(const char *transport)
{
    return !strcmp(transport, "shm") || !strcmp(transport, "tcp");
}

/* The first mpirun of PATH. */
static bool find_mpirun(char *out, size_t size)
{
    const char *path = getenv("PATH");

    for (const char *at = path ? path : ""; *at;) {
        size_t n = strcspn(at, ":");

        snprintf(out, size, "%.*s/mpirun", (int)n, at);
        if (n > 0 && access(out, X_OK) == 0)
            return true;
        at += n + (at[n] == ':');
    }
    return false;
}

static bool read_figures(const char *file, struct mpi_figures *out)
{
    FILE *f = fopen(file, "r");
    bool ok =
        f && fscanf(f, "%lf %lf %63[^\n]", &out->one_way_s, &out->round_trip_s, out->version) == 3;

    if (f)
        fclose(f);
    return ok && out->one_way_s > 0 && out->round_trip_s > 0;
}

bool mpi_measure(struct procs *p, const char *transport, int64_t bytes, int blocks,
                 struct mpi_figures *out, char why[256])
{
    char self[4096], how[512], file[160], program[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    char *argv[] = {"mpirun",
                    "-n",
                    "2",
                    "--allow-run-as-root",
                    "--oversubscribe",
                    "--bind-to",
                    "none",
                    "--mca",
                    "mpi_yield_when_idle",
                    "0",
                    "--mca",
                    "pml",
                    "ob1",
                    "--mca",
                    "btl",
                    !strcmp(transport, "shm") ? "self,vader" : "self,tcp",
                    "--mca",
                    "btl_tcp_if_include",
                    "lo",
                    self,
                    "bench",
                    "net",
                    "--mpi",
                    how,
                    NULL};

    if (!find_mpirun(program, sizeof program) || n < 1) {
        snprintf(why, 256, "Open MPI is not installed (apt install openmpi-bin)");
        return false;
    }
    self[n] = 0;
    snprintf(file, sizeof file, "%s/mpi-%s", p->folder, transport);
    snprintf(how, sizeof how, "%s,%lld,%d,%s", transport, (long long)bytes, blocks, file);
    if (!procs_start_program(p, program, argv) || !procs_wait(p, LIMIT_S) ||
        !read_figures(file, out)) {
        snprintf(why, 256, "mpirun gave no figures within %d s", LIMIT_S);
        return false;
    }
    return true;
}
