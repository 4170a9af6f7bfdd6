/* Loaded before libc (LD_PRELOAD): makes one chosen call on files below a folder fail, or kills the
 * process there. Calls that count: open for writing, mkdir, write, writev, pwrite, sendfile,
 * copy_file_range, fsync, fdatasync, rename, renameat, renameat2, unlink, unlinkat, rmdir.
 *
 * faulty_arm(folder, at, kill) chooses the call, counted from 1; at = 0 only counts.
 * faulty_error(number) sets errno of the failing call; 0 restores ENOSPC for writes, EIO for others.
 * faulty_log() returns the calls so far, one letter each: o, w, f, r, u.
 * faulty_share(file) keeps all of that in a file, which processes started with FAULTY_CONTROL=file
 * share: they count together.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

struct control {
    char folder[4096];
    char calls[65536];
    int num_calls, chosen, kills, error;
};

static struct control own, *control = &own;

#define REAL(name) ((typeof(&name))dlsym(RTLD_NEXT, #name))

void faulty_share(const char *path) {
    int file = REAL(open)(path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, sizeof own)) abort();
    control = mmap(NULL, sizeof own, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (control == MAP_FAILED) abort();
    close(file);
}

__attribute__((constructor)) static void share_with_parent(void) {
    if (getenv("FAULTY_CONTROL")) faulty_share(getenv("FAULTY_CONTROL"));
}

void faulty_arm(const char *path, int at, int kill_there) {
    strncpy(control->folder, path, sizeof control->folder - 1);
    memset(control->calls, 0, sizeof control->calls);
    control->num_calls = 0;
    control->chosen = at;
    control->kills = kill_there;
}

void faulty_error(int number) { control->error = number; }

const char *faulty_log(void) { return control->calls; }

static int is_below(const char *path) {
    return control->folder[0] && strncmp(path, control->folder, strlen(control->folder)) == 0;
}

static int is_file_below(int descriptor) {
    char link[64], path[4096];
    if (!control->folder[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return is_below(path);
}

/* An entry may be named relative to an open folder. */
static int is_entry_below(int descriptor, const char *path) {
    return path[0] == '/' ? is_below(path) : is_file_below(descriptor);
}

/* Counts a call; says whether it is the one to fail. */
static int fails(char kind) {
    int number = __atomic_add_fetch(&control->num_calls, 1, __ATOMIC_SEQ_CST);
    if (number < (int)sizeof control->calls) control->calls[number - 1] = kind;
    if (number != control->chosen) return 0;
    if (control->kills) kill(getpid(), SIGKILL);
    errno = control->error ? control->error : kind == 'w' ? ENOSPC : EIO;
    return 1;
}

#define IS_WRITING(flags) ((flags) & (O_WRONLY | O_RDWR | O_CREAT))

#define OPEN(name)                                                    \
    int name(const char *path, int flags, ...) {                      \
        va_list more;                                                 \
        va_start(more, flags);                                        \
        mode_t mode = va_arg(more, mode_t);                           \
        va_end(more);                                                 \
        if (IS_WRITING(flags) && is_below(path) && fails('o')) return -1; \
        return REAL(name)(path, flags, mode);                         \
    }

#define OPENAT(name)                                                  \
    int name(int folder, const char *path, int flags, ...) {          \
        va_list more;                                                 \
        va_start(more, flags);                                        \
        mode_t mode = va_arg(more, mode_t);                           \
        va_end(more);                                                 \
        if (IS_WRITING(flags) && is_entry_below(folder, path) && fails('o')) return -1; \
        return REAL(name)(folder, path, flags, mode);                 \
    }

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

int mkdir(const char *path, mode_t mode) {
    struct stat found;
    if (is_below(path) && stat(path, &found) && fails('o')) return -1;
    return REAL(mkdir)(path, mode);
}

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

ssize_t sendfile64(int target, int source, off_t *offset, size_t size) {
    if (is_file_below(target) && fails('w')) return -1;
    return REAL(sendfile64)(target, source, offset, size);
}

ssize_t copy_file_range(int source, off64_t *from, int target, off64_t *to, size_t size,
                        unsigned flags) {
    if (is_file_below(target) && fails('w')) return -1;
    return REAL(copy_file_range)(source, from, target, to, size, flags);
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

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
    if (is_below(from) && fails('r')) return -1;
    return REAL(renameat2)(from_folder, from, to_folder, to, flags);
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
