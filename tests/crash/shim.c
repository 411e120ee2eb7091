/* A disk that fails, and a clock that is wrong, for one process. The library is loaded before its libc.
 * The file named by FAULT_CONTROL holds one word, the fault of files whose name begins with "capture"; no file or another word:
 * everything works. The file named by CLOCK_CONTROL holds the seconds by which the wall clock is wrong. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* The largest control file, in bytes. */
#define CONTROL 32

static int is_capture(int fd) {
    char link[64], path[4096];
    int saved = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = saved;
    if (length <= 0) return 0;
    path[length] = 0;
    const char *name = strrchr(path, '/');
    return name && strncmp(name + 1, "capture", 7) == 0;
}

/* Reads the control file that a variable names. Without a file the text is empty. */
static void read_control(const char *variable, char text[static CONTROL]) {
    const char *control = getenv(variable);
    memset(text, 0, CONTROL);
    if (!control) return;
    int saved = errno;
    int file = open(control, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        if (read(file, text, CONTROL - 1) < 0) text[0] = 0;
        close(file);
    }
    errno = saved;
}

static int fails(int fd, const char *fault) {
    char word[CONTROL];
    if (!getenv("FAULT_CONTROL") || !is_capture(fd)) return 0;
    read_control("FAULT_CONTROL", word);
    return strcmp(word, fault) == 0;
}

/* How much of a write gets through: all of it, a part, or (below 0) nothing but an error. */
static ssize_t allowed(int fd, size_t count) {
    static __thread int is_second;
    if (fails(fd, "write-error")) {
        errno = EIO;
        return -1;
    }
    if (fails(fd, "half-write")) {
        /* Half of it, and when the rest is tried the disk is full. */
        is_second = !is_second;
        if (!is_second || count < 2) {
            errno = ENOSPC;
            return -1;
        }
        return (ssize_t)(count / 2);
    }
    if (fails(fd, "slow-write")) usleep(30000);
    if (fails(fd, "short-write")) return count > 7 ? 7 : (ssize_t)count;
    return (ssize_t)count;
}

static void *next(const char *name) { return dlsym(RTLD_NEXT, name); }

ssize_t write(int fd, const void *data, size_t count) {
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) real = next("write");
    ssize_t part = allowed(fd, count);
    return part < 0 ? -1 : real(fd, data, (size_t)part);
}

ssize_t pwrite64(int fd, const void *data, size_t count, off64_t at) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real) real = next("pwrite64");
    ssize_t part = allowed(fd, count);
    return part < 0 ? -1 : real(fd, data, (size_t)part, at);
}

ssize_t pwrite(int fd, const void *data, size_t count, off_t at) { return pwrite64(fd, data, count, at); }

/* Only the first of several pieces: that is a short write too. */
ssize_t writev(int fd, const struct iovec *pieces, int count) {
    static ssize_t (*real)(int, const struct iovec *, int);
    if (!real) real = next("writev");
    if (count < 1 || !getenv("FAULT_CONTROL") || !is_capture(fd)) return real(fd, pieces, count);
    return write(fd, pieces[0].iov_base, pieces[0].iov_len);
}

static int synced(int fd, const char *name) {
    if (fails(fd, "sync-error")) {
        errno = EIO;
        return -1;
    }
    int (*real)(int) = next(name);
    return real(fd);
}

int fdatasync(int fd) { return synced(fd, "fdatasync"); }
int fsync(int fd) { return synced(fd, "fsync"); }

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = next("clock_gettime");
    int result = real(clock, now);
    if (result == 0 && clock == CLOCK_REALTIME) {
        char seconds[CONTROL];
        read_control("CLOCK_CONTROL", seconds);
        now->tv_sec += atol(seconds);
    }
    return result;
}
