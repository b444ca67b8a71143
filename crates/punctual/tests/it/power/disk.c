/* A disk that can be watched, and that fails when told to. Loaded in front of the C library (LD_PRELOAD), below SQLite.
 *
 * It appends to the file $DISK_LOG, for files of the database only:
 *   W <offset> <length> <path>   before a write
 *   T <length> <path>            before a truncation
 *   B <number> <path>            before a sync
 *   S <number> <path>            after a sync that succeeded
 * What was written before some B whose S followed is on the disk; the rest is lost, kept or torn when power fails.
 * While the file $DISK_FAILS exists, syncs fail with EIO and do nothing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_long syncs;

static int log_file(void) {
    static atomic_int file = -1;
    if (file < 0) {
        const char *path = getenv("DISK_LOG");
        if (path) file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    }
    return file;
}

/* The path of a file of the database; nothing for all others. */
static const char *database_path(int fd, char *path, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, size - 1);
    if (length <= 0) return NULL;
    path[length] = 0;
    const char *name = strrchr(path, '/');
    if (!name || !strstr(name, ".db") || strstr(name, "-shm")) return NULL;
    return path;
}

static ssize_t (*real_write)(int, const void *, size_t);

static void note(const char *kind, long first, long second, const char *path) {
    char line[4200];
    int length = second < 0 ? snprintf(line, sizeof line, "%s %ld %s\n", kind, first, path)
                            : snprintf(line, sizeof line, "%s %ld %ld %s\n", kind, first, second, path);
    if (real_write(log_file(), line, length) != length) abort();
}

__attribute__((constructor)) static void load(void) { real_write = dlsym(RTLD_NEXT, "write"); }

ssize_t write(int fd, const void *bytes, size_t length) {
    char path[4096];
    if (database_path(fd, path, sizeof path)) note("W", lseek(fd, 0, SEEK_CUR), length, path);
    return real_write(fd, bytes, length);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real) real = dlsym(RTLD_NEXT, "pwrite64");
    char path[4096];
    if (database_path(fd, path, sizeof path)) note("W", offset, length, path);
    return real(fd, bytes, length, offset);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) { return pwrite64(fd, bytes, length, offset); }

int ftruncate64(int fd, off64_t length) {
    static int (*real)(int, off64_t);
    if (!real) real = dlsym(RTLD_NEXT, "ftruncate64");
    char path[4096];
    if (database_path(fd, path, sizeof path)) note("T", length, -1, path);
    return real(fd, length);
}

int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }

static int sync_with(int (*real)(int), int fd) {
    char path[4096];
    if (!database_path(fd, path, sizeof path)) return real(fd);
    const char *fails = getenv("DISK_FAILS");
    if (fails && access(fails, F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    long number = atomic_fetch_add(&syncs, 1);
    note("B", number, -1, path);
    int outcome = real(fd);
    if (outcome == 0) note("S", number, -1, path);
    return outcome;
}

int fsync(int fd) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fsync");
    return sync_with(real, fd);
}

int fdatasync(int fd) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fdatasync");
    return sync_with(real, fd);
}
