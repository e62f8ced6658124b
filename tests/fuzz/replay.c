/* replay.c - a main() for fuzz targets in builds without libFuzzer.
 *
 * Runs the target once for each file, and for each file of a folder, on the
 * command line. Exits with 2 if one of them cannot be read, or if there is
 * none. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Read a file and set `*size`. The caller frees the result, which is NULL if
 * the file cannot be read. */
static uint8_t *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    size_t capacity = 1 << 20;
    uint8_t *data = file ? malloc(capacity) : NULL;

    *size = 0;
    while (data && !feof(file) && !ferror(file)) {
        uint8_t *more;

        *size += fread(data + *size, 1, capacity - *size, file);
        if (*size < capacity)
            continue;
        more = realloc(data, capacity *= 2);
        if (!more)
            free(data);
        data = more;
    }
    if (file)
        (void)fclose(file);
    return data;
}

static int replay_file(const char *path)
{
    size_t size;
    uint8_t *data = read_file(path, &size);

    if (!data) {
        perror(path);
        return 2;
    }
    (void)LLVMFuzzerTestOneInput(data, size);
    free(data);
    return 0;
}

static int replay_folder(const char *path)
{
    struct dirent **entries;
    int count = scandir(path, &entries, NULL, alphasort);
    int status = count < 0 ? 2 : 0;

    for (int i = 0; i < count; i++) {
        char file[4096];

        (void)snprintf(file, sizeof(file), "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.' && replay_file(file))
            status = 2;
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    return status;
}

int main(int argc, char **argv)
{
    int status = argc > 1 ? 0 : 2;

    for (int i = 1; i < argc; i++) {
        struct stat about;
        int result;

        if (!stat(argv[i], &about) && S_ISDIR(about.st_mode))
            result = replay_folder(argv[i]);
        else
            result = replay_file(argv[i]);
        if (result)
            status = result;
    }
    return status;
}
