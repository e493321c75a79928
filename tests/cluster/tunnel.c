/* One way between two nodes, made slow: runs in the sender's network namespace until its stdin ends.
 *
 *     tunnel DEVICE OWN DESTINATION SEED uniform LEAST MOST             microseconds
 *     tunnel DEVICE OWN DESTINATION SEED queue LEAST SHARE MEAN         first in, first out; exponential
 *
 * then, at will, `lost SHARE`, `twice SHARE`, `overtake SHARE BY`: the share of packets that are lost, come twice, or
 * wait that much longer than those after them.
 *
 * What the node sends from its address OWN to DESTINATION is routed into a TUN device, waits for as long as the seeded
 * distribution says, and leaves by DEVICE. Sockets notice nothing: addresses and ports stay. It says "ready" once it does so.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <math.h>
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST_WAITING = 8192, SIZE = 2048 };

struct packet { int64_t due; uint64_t number; int size; unsigned char data[SIZE]; };

static struct packet *heap[MOST_WAITING]; /* the earliest first */
static int waiting;
static uint64_t entered;
static int64_t last;

static int is_queue;
static double least, most, share, mean, lost, twice, overtake, overtake_by; /* times in ns */

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int is_before(const struct packet *a, const struct packet *b)
{
    return a->due < b->due || (a->due == b->due && a->number < b->number);
}

static void push(const struct packet *packet)
{
    if (waiting == MOST_WAITING)
        return;
    struct packet *own = malloc(sizeof *own);
    if (!own)
        die("malloc");
    *own = *packet;
    own->number = entered++;
    int at = waiting++;
    for (; at > 0 && is_before(own, heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = own;
}

static struct packet *pop(void)
{
    struct packet *first = heap[0], *moved = heap[--waiting];
    int at = 0;
    for (;;) {
        int child = 2 * at + 1;
        if (child + 1 < waiting && is_before(heap[child + 1], heap[child]))
            child++;
        if (child >= waiting || !is_before(heap[child], moved))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
    return first;
}

static void enter(struct packet *packet)
{
    if (drand48() < lost)
        return;
    double delay = is_queue ? least + (drand48() < share ? -mean * log(1.0 - drand48()) : 0.0)
                            : least + (most - least) * drand48();
    packet->due = now_ns() + (int64_t)delay;
    if (is_queue)
        last = packet->due = packet->due > last ? packet->due : last;
    if (drand48() < overtake)
        packet->due += (int64_t)overtake_by;
    push(packet);
    if (drand48() < twice)
        push(packet);
}

static int open_tunnel(const char *own, const char *destination)
{
    int tunnel = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI, .ifr_name = "way%d"};
    char command[256];
    if (tunnel < 0 || ioctl(tunnel, TUNSETIFF, &request) < 0)
        die("/dev/net/tun");
    snprintf(command, sizeof command, "ip link set %s up && ip route add %s/32 dev %s src %s", request.ifr_name,
             destination, request.ifr_name, own);
    if (system(command) != 0)
        die(command);
    return tunnel;
}

static int open_exit(const char *device)
{
    int out = socket(AF_INET, SOCK_RAW, IPPROTO_RAW);
    if (out < 0 || setsockopt(out, SOL_SOCKET, SO_BINDTODEVICE, device, strlen(device) + 1) < 0)
        die(device);
    return out;
}

static void read_words(char **word, char **end)
{
    while (word < end) {
        const char *name = *word++;
        double figure[3] = {0, 0, 0};
        for (int i = 0; i < 3 && word < end && (**word == '.' || (**word >= '0' && **word <= '9')); i++)
            figure[i] = atof(*word++);
        if (!strcmp(name, "uniform")) {
            least = 1e3 * figure[0], most = 1e3 * figure[1];
        } else if (!strcmp(name, "queue")) {
            is_queue = 1, least = 1e3 * figure[0], share = figure[1], mean = 1e3 * figure[2];
        } else if (!strcmp(name, "lost")) {
            lost = figure[0];
        } else if (!strcmp(name, "twice")) {
            twice = figure[0];
        } else if (!strcmp(name, "overtake")) {
            overtake = figure[0], overtake_by = 1e3 * figure[1];
        } else {
            fprintf(stderr, "what is %s?\n", name);
            exit(1);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc < 6)
        return 1;
    prctl(PR_SET_TIMERSLACK, 1UL);
    srand48(atol(argv[4]));
    read_words(argv + 5, argv + argc);
    int tunnel = open_tunnel(argv[2], argv[3]), out = open_exit(argv[1]);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(argv[3])};
    struct pollfd watched[2] = {{.fd = tunnel, .events = POLLIN}, {.fd = 0, .events = POLLIN}};
    struct packet packet;
    puts("ready");
    fflush(stdout);
    for (;;) {
        int64_t left = waiting ? heap[0]->due - now_ns() : 1000000000LL;
        struct timespec wait = {left < 0 ? 0 : left / 1000000000LL, left < 0 ? 0 : left % 1000000000LL};
        if (ppoll(watched, 2, &wait, NULL) < 0 && errno != EINTR)
            die("ppoll");
        if (watched[1].revents)
            return 0;
        while ((packet.size = read(tunnel, packet.data, SIZE)) > 0)
            if (packet.data[0] >> 4 == 4)
                enter(&packet);
        while (waiting && heap[0]->due <= now_ns()) {
            struct packet *due = pop();
            sendto(out, due->data, due->size, 0, (struct sockaddr *)&to, sizeof to);
            free(due);
        }
    }
}
