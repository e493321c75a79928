/* A stand-in for an agent: replays the output of a real one for one of many nodes, with its own times and numbers.

   sshd starts it in place of Python (`python` in hosts.toml). Its file name is n and the number of its node. The file
   `ticks` beside it, which stand_ins.py writes, has the length of the loop and of what comes before in seconds, then a
   line for each line to send: H (hello), O (once), P and the number of one of the first ticks, or a second of the loop;
   a tab, and the line. In it, byte 1 begins a mark, ";" ends it:

     t, m   CLOCK_REALTIME and CLOCK_MONOTONIC_RAW of the tick, ns, plus a number
     s      the number of the next record, then that many are counted
     r      this number plus the node's times RANKS
     n      the number of the node, four hex digits
     a      the id of the agent
*/
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define RANKS 8
#define SECOND 1000000000LL

static long long clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * SECOND + now.tv_nsec;
}

static const char *ticks, *ticks_end;
static char out[1 << 20], agent[17];
static size_t filled;
static long long seq, tick_t, tick_mono;
static unsigned node, period, beginning;

static void flush(void)
{
    size_t written = 0;
    while (written < filled) {
        ssize_t n = write(1, out + written, filled - written);
        if (n <= 0)
            exit(0);
        written += n;
    }
    filled = 0;
}

static void put(const char *text, size_t size)
{
    if (filled + size > sizeof out)
        flush();
    memcpy(out + filled, text, size);
    filled += size;
}

static void put_number(const char *format, long long value)
{
    char text[32];
    put(text, snprintf(text, sizeof text, format, value));
}

static void put_mark(char mark, long long number)
{
    switch (mark) {
    case 't': put_number("%lld", tick_t + number); break;
    case 'm': put_number("%lld", tick_mono + number); break;
    case 's': put_number("%lld", seq + 1); seq += number; break;
    case 'r': put_number("%lld", (long long)node * RANKS + number); break;
    case 'n': put_number("%04llx", node); break;
    case 'a': put(agent, 16); break;
    }
}

static void put_line(const char *line, const char *end)
{
    const char *mark;
    while ((mark = memchr(line, 1, end - line)) != NULL) {
        put(line, mark - line);
        put_mark(mark[1], strtoll(mark + 2, NULL, 10));
        line = (const char *)memchr(mark, ';', end - mark) + 1;
    }
    put(line, end - line + 1); /* with its newline */
}

/* Sends the lines of a section: H, O, one of the first ticks, or a second. */
static void send_section(const char *section)
{
    size_t size = strlen(section);
    for (const char *line = ticks; line < ticks_end;) {
        const char *end = memchr(line, '\n', ticks_end - line);
        if (!strncmp(line, section, size) && line[size] == '\t')
            put_line(line + size + 1, end);
        line = end + 1;
    }
    flush();
}

static void set_clocks(long long t)
{
    tick_t = t;
    tick_mono = clock_ns(CLOCK_MONOTONIC_RAW) - (clock_ns(CLOCK_REALTIME) - t);
}

static double setting(const char *line, const char *name, double unset)
{
    const char *at = strstr(line, name);
    return at ? strtod(at + strlen(name), NULL) : unset;
}

static long long interval = SECOND, offset, next_tick;

static void answer(const char *line)
{
    char text[160];
    long long number;
    if (sscanf(line, "{\"ping\":%lld", &number) == 1) {
        put(text, snprintf(text, sizeof text, "{\"pong\":%lld,\"t\":%lld,\"mono\":%lld}\n", number,
                           clock_ns(CLOCK_REALTIME), clock_ns(CLOCK_MONOTONIC_RAW)));
        flush();
    } else if (sscanf(line, "{\"id\":%lld", &number) == 1) {
        int is_met = strstr(line, "\"do\":\"digest\"") || strstr(line, "\"do\":\"offer\"");
        put(text, snprintf(text, sizeof text, is_met ? "{\"re\":%lld,\"ok\":[]}\n"
                           : "{\"re\":%lld,\"error\":{\"name\":\"refused\",\"text\":\"a stand-in\"}}\n", number));
        flush();
    } else if (!strncmp(line, "{\"start\":", 9)) {
        interval = (long long)(setting(line, "\"sample_interval_ms\":", 1000) * 1e6);
        offset = (long long)(setting(line, "\"tick_offset_s\":", 0) * 1e9);
        set_clocks(clock_ns(CLOCK_REALTIME));
        send_section("H");
        send_section("O");
        next_tick = (clock_ns(CLOCK_REALTIME) / SECOND + 1) * SECOND + offset;
    } else if (!strncmp(line, "{\"stop\":", 8)) {
        exit(0);
    }
}

/* The third word of the header is the number of bytes of code after it; then each line is a frame. */
static void read_input(void)
{
    static char in[1 << 20];
    static size_t held, skip;
    static int is_past_header;
    ssize_t n = read(0, in + held, sizeof in - 1 - held);
    if (n <= 0)
        exit(0);
    held += n;
    for (;;) {
        size_t dropped = skip < held ? skip : held;
        memmove(in, in + dropped, held -= dropped);
        skip -= dropped;
        char *end = skip ? NULL : memchr(in, '\n', held);
        if (end == NULL)
            break;
        *end = 0;
        if (!is_past_header && sscanf(in, "%*s %*s %zu", &skip) == 1)
            is_past_header = 1;
        else
            answer(in);
        size_t line = end + 1 - in;
        memmove(in, in + line, held -= line);
    }
    if (held == sizeof in - 1)
        held = 0; /* a line that no stand-in needs */
}

int main(int argc, char **argv)
{
    char path[4096], section[16];
    const char *slash = strrchr(argv[0], '/');
    struct stat status;
    if (argc < 1 || slash == NULL || sscanf(slash, "/n%u", &node) != 1)
        return 2;
    snprintf(path, sizeof path, "%.*s/ticks", (int)(slash - argv[0]), argv[0]);
    int file = open(path, O_RDONLY);
    if (file < 0 || fstat(file, &status) != 0)
        return 2;
    ticks = mmap(NULL, status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    ticks_end = ticks + status.st_size;
    char *after;
    period = strtoul(ticks, &after, 10);
    beginning = strtoul(after, NULL, 10);
    snprintf(agent, sizeof agent, "%016llx", clock_ns(CLOCK_REALTIME) ^ ((long long)getpid() << 40));
    for (unsigned tick = 0;;) {
        struct pollfd input = {.fd = 0, .events = POLLIN};
        long long wait = next_tick ? next_tick - clock_ns(CLOCK_REALTIME) : SECOND;
        if (next_tick && wait <= 0) {
            set_clocks(next_tick);
            if (tick < beginning) {
                snprintf(section, sizeof section, "P%u", tick);
                send_section(section);
            }
            snprintf(section, sizeof section, "%u", (node * 7 + tick++) % period); /* each node at another second */
            send_section(section);
            next_tick += interval;
        } else if (poll(&input, 1, (int)(wait / 1000000) + 1) > 0) {
            read_input();
        }
    }
}
