// A file system by FUSE whose syncs take as long as they are told to: for measuring on a machine
// whose own disk is faster, slower, or noisy. Files lie in another directory, best in memory.
//
//   cc -O2 -o slow-sync scripts/slow-sync.c $(pkg-config fuse3 --cflags --libs)
//   slow-sync MICROSECONDS[,JITTER][,shared] FILES MOUNTPOINT [options of FUSE]
//
// MICROSECONDS: the time of fsync, fdatasync and the sync of a directory, for several threads at once.
// JITTER: each sync takes up to as many microseconds more. shared: the device has one flush at a time; a
// sync waits for the flush under way, and shares the next flush with all others that wait.
// FILES: the directory with the files. End: fusermount3 -u MOUNTPOINT.

#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

static int files;
static long microseconds, jitter;
static int is_shared;

static void flush_device(void) {
    static __thread unsigned seed;
    if (!seed) seed = (unsigned)(uintptr_t)&seed | 1;
    long time = microseconds + (jitter ? rand_r(&seed) % (jitter + 1) : 0);
    struct timespec left = {time / 1000000, time % 1000000 * 1000};
    while (nanosleep(&left, &left) && errno == EINTR) {}
}

// Flushes are numbered; a sync is done once a flush has ended that began after the call.
static void share_flush(void) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
    static unsigned long begun, done;
    static int is_running;
    pthread_mutex_lock(&lock);
    unsigned long wanted = begun + 1;
    while (done < wanted) {
        if (is_running) {
            pthread_cond_wait(&ended, &lock);
            continue;
        }
        is_running = 1;
        unsigned long own = ++begun;
        pthread_mutex_unlock(&lock);
        flush_device();
        pthread_mutex_lock(&lock);
        is_running = 0;
        done = own;
        pthread_cond_broadcast(&ended);
    }
    pthread_mutex_unlock(&lock);
}

// Paths below the directory of the files.
static const char *below(const char *path) { return path[1] ? path + 1 : "."; }

static int done(long result) { return result < 0 ? -errno : (int)result; }

static void *begin(struct fuse_conn_info *connection, struct fuse_config *config) {
    (void)connection;
    config->kernel_cache = 1;
    config->entry_timeout = config->attr_timeout = config->negative_timeout = 0;
    return NULL;
}

static int get_attributes(const char *path, struct stat *out, struct fuse_file_info *file) {
    return done(file ? fstat((int)file->fh, out) : fstatat(files, below(path), out, AT_SYMLINK_NOFOLLOW));
}

static int read_directory(const char *path, void *buffer, fuse_fill_dir_t fill, off_t offset,
                          struct fuse_file_info *file, enum fuse_readdir_flags flags) {
    (void)offset, (void)file, (void)flags;
    int directory = openat(files, below(path), O_RDONLY | O_DIRECTORY);
    if (directory < 0) return -errno;
    DIR *entries = fdopendir(directory);
    for (struct dirent *entry; (entry = readdir(entries));) fill(buffer, entry->d_name, NULL, 0, 0);
    closedir(entries);
    return 0;
}

static int open_file(const char *path, struct fuse_file_info *file) {
    int opened = openat(files, below(path), file->flags & ~O_DIRECT);
    file->fh = (uint64_t)opened;
    return opened < 0 ? -errno : 0;
}

static int create_file(const char *path, mode_t mode, struct fuse_file_info *file) {
    int opened = openat(files, below(path), (file->flags & ~O_DIRECT) | O_CREAT, mode);
    file->fh = (uint64_t)opened;
    return opened < 0 ? -errno : 0;
}

static int read_file(const char *path, char *out, size_t size, off_t offset, struct fuse_file_info *file) {
    (void)path;
    return done(pread((int)file->fh, out, size, offset));
}

static int write_file(const char *path, const char *from, size_t size, off_t offset,
                      struct fuse_file_info *file) {
    (void)path;
    return done(pwrite((int)file->fh, from, size, offset));
}

static int sync_file(const char *path, int data_only, struct fuse_file_info *file) {
    (void)path, (void)data_only, (void)file;
    if (is_shared) share_flush();
    else flush_device();
    return 0;
}

static int release_file(const char *path, struct fuse_file_info *file) {
    (void)path;
    return done(close((int)file->fh));
}

static int truncate_file(const char *path, off_t size, struct fuse_file_info *file) {
    if (file) return done(ftruncate((int)file->fh, size));
    int opened = openat(files, below(path), O_WRONLY);
    if (opened < 0) return -errno;
    int result = done(ftruncate(opened, size));
    close(opened);
    return result;
}

static int allocate(const char *path, int mode, off_t offset, off_t length, struct fuse_file_info *file) {
    (void)path;
    return done(fallocate((int)file->fh, mode, offset, length));
}

static int make_directory(const char *path, mode_t mode) { return done(mkdirat(files, below(path), mode)); }
static int remove_file(const char *path) { return done(unlinkat(files, below(path), 0)); }
static int remove_directory(const char *path) { return done(unlinkat(files, below(path), AT_REMOVEDIR)); }
static int change_mode(const char *path, mode_t mode, struct fuse_file_info *file) {
    (void)file;
    return done(fchmodat(files, below(path), mode, 0));
}
static int set_times(const char *path, const struct timespec times[2], struct fuse_file_info *file) {
    (void)file;
    return done(utimensat(files, below(path), times, AT_SYMLINK_NOFOLLOW));
}
static int rename_file(const char *from, const char *to, unsigned flags) {
    return done(renameat2(files, below(from), files, below(to), flags));
}
static int make_link(const char *from, const char *to) {
    return done(linkat(files, below(from), files, below(to), 0));
}
static int tell_space(const char *path, struct statvfs *out) {
    (void)path;
    return done(fstatvfs(files, out));
}

static const struct fuse_operations operations = {
    .init = begin, .getattr = get_attributes, .readdir = read_directory, .open = open_file,
    .create = create_file, .read = read_file, .write = write_file, .fsync = sync_file,
    .fsyncdir = sync_file, .release = release_file, .truncate = truncate_file, .fallocate = allocate,
    .mkdir = make_directory, .unlink = remove_file, .rmdir = remove_directory, .chmod = change_mode,
    .utimens = set_times, .rename = rename_file, .link = make_link, .statfs = tell_space,
};

static int usage(const char *program) {
    fprintf(stderr, "usage: %s MICROSECONDS[,JITTER][,shared] FILES MOUNTPOINT [options of FUSE]\n", program);
    return 2;
}

int main(int count, char **words) {
    if (count < 4) return usage(words[0]);
    char *rest;
    microseconds = strtol(words[1], &rest, 10);
    if (rest == words[1] || microseconds < 0) return usage(words[0]);
    if (rest[0] == ',' && rest[1] >= '0' && rest[1] <= '9') jitter = strtol(rest + 1, &rest, 10);
    is_shared = strcmp(rest, ",shared") == 0;
    if (*rest && !is_shared) return usage(words[0]);
    files = open(words[2], O_RDONLY | O_DIRECTORY);
    if (files < 0) {
        perror(words[2]);
        return 1;
    }
    // A thread for each sync under way, and some for all else.
    char *given[count + 1];
    given[0] = words[0];
    memcpy(given + 1, words + 3, (size_t)(count - 3) * sizeof *words);
    given[count - 2] = "-o";
    given[count - 1] = "max_threads=256";
    given[count] = NULL;
    return fuse_main(count, given, &operations, NULL);
}
