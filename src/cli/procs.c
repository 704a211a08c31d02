/* procs.c - processes that a command starts as parts of itself. */
#define _GNU_SOURCE
#include "procs.h"

#include <dirent.h>
#include <fcntl.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

static void empty(int parent, const char *name)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;

    while (d && (e = readdir(d))) {
        struct stat s;

        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        if (!fstatat(dirfd(d), e->d_name, &s, AT_SYMLINK_NOFOLLOW) && S_ISDIR(s.st_mode))
            empty(dirfd(d), e->d_name);
        else
            unlinkat(dirfd(d), e->d_name, 0);
    }
    if (d)
        closedir(d);
    unlinkat(parent, name, AT_REMOVEDIR);
}

void procs_remove(const char *folder)
{
    empty(AT_FDCWD, folder);
}

void procs_close(struct procs *p)
{
    for (int i = 0; i < p->n; i++)
        if (p->pid[i] > 0) {
            kill(p->pid[i], SIGKILL);
            waitpid(p->pid[i], NULL, 0);
            p->pid[i] = 0;
        }
    empty(AT_FDCWD, p->folder);
}

static void stop_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGHUP);
}

/* Waits for Ctrl-C, which is blocked everywhere else. */
static void *await_signal(void *arg)
{
    sigset_t set;
    int sig;

    stop_signals(&set);
    sigwait(&set, &sig);
    procs_close(arg);
    _exit(EXIT_STOPPED);
}

bool procs_open(struct procs *p, const char *what)
{
    const char *tmp = getenv("TMPDIR");
    pthread_t thread;
    sigset_t set;

    *p = (struct procs){.n = 0};
    if (!tmp || !*tmp || strlen(tmp) > MAX_TMP) /* a Unix socket in it needs a short path */
        tmp = "/tmp";
    snprintf(p->folder, sizeof p->folder, "%s/weft-bench-XXXXXX", tmp);
    stop_signals(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (!mkdtemp(p->folder)) {
        fail(EXIT_FAILED, "%s: cannot make a directory in %s: %s", what, tmp, strerror(errno));
        return false;
    }
    if (pthread_create(&thread, NULL, await_signal, p)) {
        procs_close(p);
        fail(EXIT_FAILED, "%s: no thread can be started", what);
        return false;
    }
    return true;
}

/* Another program says nothing here: its output is not the command's. */
static bool start(struct procs *p, const char *program, bool silent, char *const *argv)
{
    pid_t parent = getpid(), pid = p->n < MAX_PROCS ? fork() : -1;
    sigset_t none;

    if (pid != 0) {
        if (pid > 0)
            p->pid[p->n++] = pid;
        return pid > 0;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it has ended already */
        _exit(1);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (silent) {
        int null = open("/dev/null", O_RDWR);

        for (int fd = 0; fd < 3; fd++)
            dup2(null, fd);
    }
    execv(program, argv);
    _exit(127);
}

bool procs_start(struct procs *p, char *const *argv)
{
    return start(p, "/proc/self/exe", false, argv);
}

bool procs_start_program(struct procs *p, const char *path, char *const *argv)
{
    return start(p, path, true, argv);
}

bool procs_wait(struct procs *p, double seconds)
{
    bool ok = true;

    for (int i = 0; i < p->n; i++) {
        int status = -1;
        pid_t pid = 0;

        if (p->pid[i] == 0) /* it was waited for before */
            continue;
        while ((pid = waitpid(p->pid[i], &status, WNOHANG)) == 0 && seconds > 0) {
            nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
            seconds -= 0.005;
        }
        if (pid == p->pid[i])
            p->pid[i] = 0;
        ok &= pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    return ok;
}
