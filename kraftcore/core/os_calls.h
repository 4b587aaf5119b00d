/* System calls of files.pyx that differ between systems, or take structures. */

#ifndef KRAFTCORE_OS_CALLS_H
#define KRAFTCORE_OS_CALLS_H

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static int kraft_sync(int fd, int whole) {
#ifdef __APPLE__
    int result = fcntl(fd, F_FULLFSYNC);  /* fsync alone leaves the bytes in the drive's cache */
    if (result == 0 || (errno != ENOTSUP && errno != EINVAL))
        return result;
    return fsync(fd);
#else
    return whole ? fsync(fd) : fdatasync(fd);
#endif
}

/* Makes a folder, and a file in it with its content; an empty path: none. Returns 0 or errno; EEXIST is the folder's. */
static int kraft_add_folder(const char *folder, const char *path, const char *data, int64_t size) {
    int fd, code = 0;
    if (mkdir(folder, 0777) < 0)
        return errno;
    if (path[0] == 0)
        return 0;
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return errno == EEXIST ? EIO : errno;  /* the folder is new */
    while (size > 0 && code == 0) {
        ssize_t written = write(fd, data, (size_t)size);
        if (written >= 0) {
            data += written;
            size -= written;
        } else if (errno != EINTR) {
            code = errno;
        }
    }
    if (close(fd) < 0 && errno != EINTR && code == 0)
        code = errno;
    return code;
}

/* Makes the folders from one on, in order, until one fails: returns which, or the count; ``code`` says why. */
static int64_t kraft_add_folders(const char **folders, const char **paths, const char **data, const int64_t *sizes,
                                 int64_t from, int64_t count, int *code) {
    for (*code = 0; from < count; from++)
        if ((*code = kraft_add_folder(folders[from], paths[from], data[from], sizes[from])) != 0)
            break;
    return from;
}

/* Renames so many, in order, until one fails. Returns how many were renamed; errno says why not all. */
static int64_t kraft_rename_all(const char **sources, const char **targets, int64_t count) {
    int64_t done = 0;
    while (done < count && rename(sources[done], targets[done]) == 0)
        done++;
    return done;
}

static void kraft_write_out(int fd) {
#ifdef SYNC_FILE_RANGE_WRITE
    (void)sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);  /* an error is told by the next sync */
#else
    (void)fd;
#endif
}

static int64_t kraft_size(int fd) {
    struct stat info;
    return fstat(fd, &info) == 0 ? (int64_t)info.st_size : -1;
}

/* The lock that Java's FileChannel.tryLock conflicts with: a record lock over the whole file. Where the system has
   them, of the kind that belongs to the open file, so that closing another descriptor does not drop it. */
static int kraft_lock(int fd) {
    struct flock lock;
    memset(&lock, 0, sizeof(lock));
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
#ifdef F_OFD_SETLK
    return fcntl(fd, F_OFD_SETLK, &lock);
#else
    return fcntl(fd, F_SETLK, &lock);
#endif
}

/* The process whose lock is in the way. Below 1: there is none any more, or it belongs to an open file. */
static int kraft_lock_owner(int fd) {
    struct flock lock;
    memset(&lock, 0, sizeof(lock));
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    return fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK ? (int)lock.l_pid : 0;
}

#endif
