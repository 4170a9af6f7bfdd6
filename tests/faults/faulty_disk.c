/* Loaded before libc (LD_PRELOAD): makes one chosen call on files below a folder fail, or kills the
 * process there. Calls that count: write, writev, pwrite, fsync, fdatasync, rename, renameat, unlink,
 * unlinkat, rmdir.
 *
 * faulty_arm(folder, at, kill) chooses the call, counted from 1; at = 0 only counts.
 * faulty_log() tells the calls so far, one letter each: w, f, r, u.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char folder[4096];
static char calls[65536];
static int num_calls, chosen, kills;

void faulty_arm(const char *path, int at, int kill_there) {
    strncpy(folder, path, sizeof folder - 1);
    memset(calls, 0, sizeof calls);
    num_calls = 0;
    chosen = at;
    kills = kill_there;
}

const char *faulty_log(void) { return calls; }

static int is_below(const char *path) {
    return folder[0] && strncmp(path, folder, strlen(folder)) == 0;
}

static int is_file_below(int descriptor) {
    char link[64], path[4096];
    if (!folder[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return is_below(path);
}

/* Counts a call; says whether it is the one to fail. */
static int fails(char kind) {
    if (num_calls < (int)sizeof calls - 1) calls[num_calls] = kind;
    if (++num_calls != chosen) return 0;
    if (kills) kill(getpid(), SIGKILL);
    errno = kind == 'w' ? ENOSPC : EIO;
    return 1;
}

#define REAL(name) ((typeof(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int descriptor, const void *data, size_t size) {
    if (is_file_below(descriptor) && fails('w')) return -1;
    return REAL(write)(descriptor, data, size);
}

ssize_t writev(int descriptor, const struct iovec *parts, int count) {
    if (is_file_below(descriptor) && fails('w')) return -1;
    return REAL(writev)(descriptor, parts, count);
}

ssize_t pwrite64(int descriptor, const void *data, size_t size, off_t offset) {
    if (is_file_below(descriptor) && fails('w')) return -1;
    return REAL(pwrite64)(descriptor, data, size, offset);
}

int fsync(int descriptor) {
    if (is_file_below(descriptor) && fails('f')) return -1;
    return REAL(fsync)(descriptor);
}

int fdatasync(int descriptor) {
    if (is_file_below(descriptor) && fails('f')) return -1;
    return REAL(fdatasync)(descriptor);
}

int rename(const char *from, const char *to) {
    if (is_below(from) && fails('r')) return -1;
    return REAL(rename)(from, to);
}

int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    if (is_below(from) && fails('r')) return -1;
    return REAL(renameat)(from_folder, from, to_folder, to);
}

/* Removals name a file relative to an open folder. */
static int is_entry_below(int descriptor, const char *path) {
    return path[0] == '/' ? is_below(path) : is_file_below(descriptor);
}

int unlinkat(int descriptor, const char *path, int flags) {
    if (is_entry_below(descriptor, path) && fails('u')) return -1;
    return REAL(unlinkat)(descriptor, path, flags);
}

int unlink(const char *path) {
    if (is_below(path) && fails('u')) return -1;
    return REAL(unlink)(path);
}

int rmdir(const char *path) {
    if (is_below(path) && fails('u')) return -1;
    return REAL(rmdir)(path);
}
