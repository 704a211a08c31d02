/* keeper.c - a directory that vanishes with the process that made it, however that ends.
 *
 * The keeper is a process that holds one end of a pipe, the lifeline. When the other process ends,
 * the pipe ends, and the keeper removes the directory. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "procs.h"

/* Whoever ends the process by the words of its command (pkill -f) does not mean this one: it shows
 * other words. */
static void rename_command(void)
{
    static const char name[] = "weft-keeper";
    char text[2048], *at;
    unsigned long begin = 0, end = 0;
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    at = strrchr(text, ')'); /* field 2; 48 and 49 are where the words are */
    for (int field = 2; at && field < 48; field++)
        at = strchr(at + 1, ' ');
    if (!at || sscanf(at, "%lu %lu", &begin, &end) != 2 || !begin || end < begin + sizeof name)
        return;
    memset((void *)(uintptr_t)begin, 0, end - begin);
    memcpy((void *)(uintptr_t)begin, name, sizeof name);
}

static void keep(const char *folder, int lifeline)
{
    int null = open("/dev/null", O_RDWR);
    char c;
    ssize_t n;

    setsid();
    prctl(PR_SET_NAME, "weft-keeper");
    rename_command();
    for (int fd = 0; fd < 3 && null >= 0; fd++)
        dup2(null, fd);
    do
        n = read(lifeline, &c, 1);
    while (n > 0 || (n < 0 && errno == EINTR));
    for (int i = 0; i < 40 && access(folder, F_OK) == 0; i++) {
        procs_remove(folder); /* others die at the same moment, and may still create files */
        nanosleep(&(struct timespec){.tv_nsec = 25000000}, NULL);
    }
    _exit(0);
}

bool keeper_start(struct keeper *k, const char *folder)
{
    if (pipe2(k->lifeline, O_CLOEXEC))
        return false;
    fflush(NULL);
    k->pid = fork();
    if (k->pid == 0) {
        close(k->lifeline[1]);
        keep(folder, k->lifeline[0]);
    }
    if (k->pid > 0)
        return true;
    k->pid = 0;
    close(k->lifeline[0]);
    close(k->lifeline[1]);
    return false;
}

void keeper_stop(struct keeper *k, const char *folder)
{
    if (k->pid <= 0)
        return;
    procs_remove(folder);
    kill(k->pid, SIGKILL);
    waitpid(k->pid, NULL, 0);
    k->pid = 0;
    close(k->lifeline[0]);
    close(k->lifeline[1]);
}
