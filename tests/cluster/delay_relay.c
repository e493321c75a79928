/* Delays one direction between two nodes: runs in the sender's network namespace until its stdin ends.
 *
 *     delay_relay DEVICE OWN DESTINATION SEED uniform LEAST MOST             microseconds
 *     delay_relay DEVICE OWN DESTINATION SEED queue LEAST SHARE MEAN         first in, first out; exponential
 *
 * then, optionally, `lost SHARE`, `twice SHARE`, `overtake SHARE BY`: the share of packets that are dropped, duplicated,
 * or delayed by another BY and so reordered.
 *
 * Packets from the address OWN to DESTINATION are routed into an unconnected veth, delayed by a seeded distribution, and
 * sent through DEVICE. Addresses and ports are unchanged. The delay is relative to the kernel's timestamp of the packet,
 * and its last part is a busy wait: the wake-up latency of this program would otherwise add to the delay, and not
 * equally in both directions (up to 5 us were measured).
 * Prints "ready" once it relays.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <math.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST_WAITING = 8192, SIZE = 2048, AWAKE_NS = 25000 };

struct packet { int64_t due; uint64_t number; int size; unsigned char data[SIZE]; };

static struct packet *heap[MOST_WAITING]; /* the earliest first */
static int waiting;
static uint64_t entered;
static int64_t last;

static char name[16]; /* of the veth */
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
    clock_gettime(CLOCK_REALTIME, &t);
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

static void enter(struct packet *packet, int64_t at)
{
    if (drand48() < lost)
        return;
    double delay = is_queue ? least + (drand48() < share ? -mean * log(1.0 - drand48()) : 0.0)
                            : least + (most - least) * drand48();
    packet->due = at + (int64_t)delay;
    if (is_queue)
        last = packet->due = packet->due > last ? packet->due : last;
    if (drand48() < overtake)
        packet->due += (int64_t)overtake_by;
    push(packet);
    if (drand48() < twice)
        push(packet);
}

static int open_entrance(const char *own, const char *destination)
{
    char command[512];
    int one = 1, entrance = socket(AF_PACKET, SOCK_DGRAM, 0);
    snprintf(name, sizeof name, "w%08x", inet_addr(destination));
    snprintf(command, sizeof command,
             "ip link add %s type veth peer name %sx && ip link set %s arp off up && ip link set %sx arp off up && "
             "ip route add %s/32 dev %s src %s",
             name, name, name, name, destination, name, own);
    if (system(command) != 0)
        die("ip link add");
    struct sockaddr_ll where = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL),
                                .sll_ifindex = if_nametoindex(name)};
    if (entrance < 0 || bind(entrance, (struct sockaddr *)&where, sizeof where) < 0 ||
        setsockopt(entrance, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one) < 0)
        die(name);
    return entrance;
}

/* The next packet that the node sent, and its timestamp; 0 if there is none. */
static int receive(int entrance, struct packet *packet, int64_t *at)
{
    char control[128];
    struct sockaddr_ll from;
    struct iovec part = {packet->data, SIZE};
    struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &part, .msg_iovlen = 1,
                             .msg_control = control, .msg_controllen = sizeof control};
    packet->size = recvmsg(entrance, &message, MSG_DONTWAIT);
    if (packet->size <= 0)
        return 0;
    *at = now_ns();
    for (struct cmsghdr *one = CMSG_FIRSTHDR(&message); one; one = CMSG_NXTHDR(&message, one))
        if (one->cmsg_level == SOL_SOCKET && one->cmsg_type == SO_TIMESTAMPNS) {
            struct timespec *stamp = (struct timespec *)CMSG_DATA(one);
            *at = stamp->tv_sec * 1000000000LL + stamp->tv_nsec;
        }
    int head = 4 * (packet->data[0] & 15);
    if (packet->data[9] == IPPROTO_UDP && packet->size > head + 8)
        packet->data[head + 6] = packet->data[head + 7] = 0; /* checksum offload: 0 means no checksum */
    return from.sll_pkttype == PACKET_OUTGOING && packet->data[0] >> 4 == 4 ? 1 : receive(entrance, packet, at);
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
        const char *kind = *word++;
        double figure[3] = {0, 0, 0};
        for (int i = 0; i < 3 && word < end && (**word == '.' || (**word >= '0' && **word <= '9')); i++)
            figure[i] = atof(*word++);
        if (!strcmp(kind, "uniform")) {
            least = 1e3 * figure[0], most = 1e3 * figure[1];
        } else if (!strcmp(kind, "queue")) {
            is_queue = 1, least = 1e3 * figure[0], share = figure[1], mean = 1e3 * figure[2];
        } else if (!strcmp(kind, "lost")) {
            lost = figure[0];
        } else if (!strcmp(kind, "twice")) {
            twice = figure[0];
        } else if (!strcmp(kind, "overtake")) {
            overtake = figure[0], overtake_by = 1e3 * figure[1];
        } else {
            fprintf(stderr, "what is %s?\n", kind);
            exit(1);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc < 6)
        return 1;
    prctl(PR_SET_TIMERSLACK, 1UL);
    sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 1}); /* a link does not wait for a CPU */
    srand48(atol(argv[4]));
    read_words(argv + 5, argv + argc);
    int entrance = open_entrance(argv[2], argv[3]), out = open_exit(argv[1]);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(argv[3])};
    struct pollfd watched[2] = {{.fd = entrance, .events = POLLIN}, {.fd = 0, .events = POLLIN}};
    struct packet packet;
    int64_t at;
    puts("ready");
    fflush(stdout);
    while (!watched[1].revents) {
        while (receive(entrance, &packet, &at))
            enter(&packet, at);
        while (waiting && heap[0]->due <= now_ns()) {
            struct packet *due = pop();
            sendto(out, due->data, due->size, 0, (struct sockaddr *)&to, sizeof to);
            free(due);
        }
        int64_t left = waiting ? heap[0]->due - now_ns() - AWAKE_NS : 1000000000LL;
        struct timespec wait = {left < 0 ? 0 : left / 1000000000LL, left < 0 ? 0 : left % 1000000000LL};
        if (ppoll(watched, 2, &wait, NULL) < 0 && errno != EINTR)
            die("ppoll");
    }
    char command[64];
    snprintf(command, sizeof command, "ip link del %s", name);
    return system(command);
}
