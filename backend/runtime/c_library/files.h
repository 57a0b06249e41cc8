/* Files of a bundle: mapping and checksums. */
#ifndef REWRITE_FILES_H
#define REWRITE_FILES_H

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rewrite.h"

#define FILES_CHUNK ((size_t)16 << 20)

typedef struct {
  const unsigned char *data; /* NULL if the file is empty */
  size_t size;
} file_map;

__attribute__((format(printf, 3, 4))) static rewrite_status failed(rewrite_error *error, rewrite_status status,
                                                                   const char *format, ...) {
  if (error) {
    va_list rest;
    error->status = status;
    va_start(rest, format);
    vsnprintf(error->message, sizeof error->message, format, rest);
    va_end(rest);
  }
  return status;
}

static rewrite_status no_memory(rewrite_error *error) {
  return failed(error, REWRITE_NO_MEMORY, "there is not enough memory");
}

/* Map a file for reading. */
static rewrite_status file_open(const char *path, file_map *map, rewrite_error *error) {
  struct stat about;
  *map = (file_map){NULL, 0};
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    const int missing = errno == ENOENT || errno == ENOTDIR;
    return failed(error, missing ? REWRITE_DAMAGED : REWRITE_SYSTEM_ERROR, "%s: %s", path, strerror(errno));
  }
  if (fstat(file, &about) || !S_ISREG(about.st_mode)) {
    close(file);
    return failed(error, REWRITE_DAMAGED, "%s: is not a file", path);
  }
  if (about.st_size) {
    void *found = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (found == MAP_FAILED) {
      const int reason = errno;
      close(file);
      return failed(error, REWRITE_SYSTEM_ERROR, "%s: cannot be mapped: %s", path, strerror(reason));
    }
    *map = (file_map){found, (size_t)about.st_size};
  }
  close(file);
  return REWRITE_OK;
}

static void file_close(file_map *map) {
  if (map->data) munmap((void *)map->data, map->size);
  *map = (file_map){NULL, 0};
}

/* Tables of CRC-32 (IEEE 802.3), for eight bytes at a time. */
typedef struct {
  uint32_t row[8][256];
} crc_tables;

static void crc_prepare(crc_tables *tables) {
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; bit++) c = c & 1 ? 0xedb88320u ^ c >> 1 : c >> 1;
    tables->row[0][i] = c;
  }
  for (uint32_t i = 0; i < 256; i++)
    for (int k = 1; k < 8; k++)
      tables->row[k][i] = tables->row[0][tables->row[k - 1][i] & 255] ^ tables->row[k - 1][i] >> 8;
}

static uint32_t crc_of(const crc_tables *tables, const unsigned char *data, size_t size) {
  const uint32_t(*t)[256] = tables->row;
  uint32_t c = 0xffffffffu;
  for (; size >= 8; data += 8, size -= 8) {
    uint32_t low, high;
    memcpy(&low, data, 4);
    memcpy(&high, data + 4, 4);
    low ^= c;
    c = t[7][low & 255] ^ t[6][low >> 8 & 255] ^ t[5][low >> 16 & 255] ^ t[4][low >> 24] ^ t[3][high & 255] ^
        t[2][high >> 8 & 255] ^ t[1][high >> 16 & 255] ^ t[0][high >> 24];
  }
  for (; size; data++, size--) c = t[0][(c ^ *data) & 255] ^ c >> 8;
  return ~c;
}

/* Return the CRC-32 over those of the chunks of a file, as the manifest has it (system/file_contents.py). */
static uint32_t file_crc(const crc_tables *tables, const file_map *map) {
  uint32_t whole = 0xffffffffu;
  if (!map->size) return 0;
  for (size_t at = 0; at < map->size; at += FILES_CHUNK) {
    const size_t rest = map->size - at;
    const uint32_t one = crc_of(tables, map->data + at, rest < FILES_CHUNK ? rest : FILES_CHUNK);
    for (int byte = 0; byte < 4; byte++)
      whole = tables->row[0][(whole ^ one >> 8 * byte) & 255] ^ whole >> 8;
  }
  return ~whole;
}

#endif
