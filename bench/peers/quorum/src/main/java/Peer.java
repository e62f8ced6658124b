import io.etcd.jetcd.ByteSequence;
import io.etcd.jetcd.Client;
import io.etcd.jetcd.maintenance.StatusResponse;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.logging.LogManager;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryForever;

/**
 * The locks of etcd (its lock service, with jetcd) and of ZooKeeper (Curator's
 * InterProcessMutex), measured as bench/raft measures ours. The threads share
 * one client, as programs use it.
 *
 * <p>Peer etcd|zookeeper PORT,PORT,PORT: answers orders, a line each:
 *
 * <pre>
 *   leader                         the number of the port whose server leads
 *   pairs THREADS SPAN_MS          1000 pairs/s, p50 and p99 in µs
 *   handover WAITERS COUNT HOLD_MS p50 and p99 in µs, and the least and the
 *                                  most acquisitions of a thread
 *   first                          takes a lock, and retries until it has it:
 *                                  when, in ns of the monotonic clock
 * </pre>
 */
public final class Peer {
    private static final int SAMPLES = 200000;
    private static final int LEASE_S = 60;
    private static final int ATTEMPT_MS = 1000;

    /** The lock of one thread. */
    private interface Lock {
        void lock() throws Exception;

        void unlock() throws Exception;

        void close() throws Exception;
    }

    private interface Service {
        Lock open(String key) throws Exception;

        boolean leads(int port) throws Exception;
    }

    private static Service service;
    private static int[] ports;

    // ---- etcd ---------------------------------------------------------------

    private static final class Etcd implements Service {
        private static final int GIVE_UP_MS = 30000;

        private final Client client;

        Etcd() {
            client = Client.builder().endpoints(Arrays.stream(ports)
                .mapToObj(Etcd::endpoint).toArray(String[]::new)).build();
        }

        private static String endpoint(int port) {
            return "http://127.0.0.1:" + port;
        }

        @Override
        public boolean leads(int port) throws Exception {
            StatusResponse status = client.getMaintenanceClient()
                .statusMember(endpoint(port)).get(5, TimeUnit.SECONDS);
            return status.getLeader() == status.getHeader().getMemberId();
        }

        /** A server that starts again may refuse a request. */
        private static <T> T retry(Callable<T> call) throws Exception {
            for (long began = System.nanoTime();;) {
                try {
                    return call.call();
                } catch (Exception e) {
                    if (System.nanoTime() - began > GIVE_UP_MS * 1000000L) {
                        throw e;
                    }
                    Thread.sleep(20);
                }
            }
        }

        @Override
        public Lock open(String key) throws Exception {
            ByteSequence name =
                ByteSequence.from(key, StandardCharsets.UTF_8);
            long lease = retry(() -> client.getLeaseClient().grant(LEASE_S)
                .get(5, TimeUnit.SECONDS).getID());
            return new Lock() {
                private ByteSequence held;

                @Override
                public void lock() throws Exception {
                    held = retry(() -> client.getLockClient()
                        .lock(name, lease).get(30, TimeUnit.SECONDS).getKey());
                }

                @Override
                public void unlock() throws Exception {
                    retry(() -> client.getLockClient().unlock(held)
                        .get(30, TimeUnit.SECONDS));
                }

                @Override
                public void close() throws Exception {
                    retry(() -> client.getLeaseClient().revoke(lease)
                        .get(5, TimeUnit.SECONDS));
                }
            };
        }
    }

    // ---- ZooKeeper ----------------------------------------------------------

    private static final class ZooKeeper implements Service {
        private final CuratorFramework client;

        ZooKeeper() {
            String[] servers = Arrays.stream(ports)
                .mapToObj(port -> "127.0.0.1:" + port).toArray(String[]::new);
            client = CuratorFrameworkFactory.newClient(
                String.join(",", servers), 10000, 10000, new RetryForever(20));
            client.start();
        }

        @Override
        public boolean leads(int port) throws Exception {
            try (Socket socket = new Socket("127.0.0.1", port)) {
                socket.setSoTimeout(2000);
                socket.getOutputStream().write("srvr".getBytes());
                return new String(socket.getInputStream().readAllBytes())
                    .contains("Mode: leader");
            }
        }

        @Override
        public Lock open(String key) {
            InterProcessMutex mutex = new InterProcessMutex(client, "/" + key);
            return new Lock() {
                @Override
                public void lock() throws Exception {
                    mutex.acquire();
                }

                @Override
                public void unlock() throws Exception {
                    mutex.release();
                }

                @Override
                public void close() {
                }
            };
        }
    }

    // ---- Orders -------------------------------------------------------------

    private interface Work {
        void run(int number) throws Exception;
    }

    private static List<Thread> start(int threads, Work work) {
        List<Thread> started = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            int number = i;
            Thread thread = new Thread(() -> {
                try {
                    work.run(number);
                } catch (Exception e) {
                    e.printStackTrace();
                    System.exit(1);
                }
            });
            started.add(thread);
            thread.start();
        }
        return started;
    }

    private static void join(List<Thread> threads) throws Exception {
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private static double quantile(double[] sorted, double part) {
        double at = part * (sorted.length - 1);
        int low = (int) at;
        int high = Math.min(low + 1, sorted.length - 1);
        return sorted[low] + (sorted[high] - sorted[low]) * (at - low);
    }

    private static String quantiles(double[] micros) {
        Arrays.sort(micros);
        return quantile(micros, 0.5) + " " + quantile(micros, 0.99);
    }

    private static String pairs(int threads, long spanMs) throws Exception {
        double[][] micros = new double[threads][SAMPLES / threads];
        int[] counts = new int[threads];
        CyclicBarrier ready = new CyclicBarrier(threads + 1);
        AtomicLong ended = new AtomicLong();
        List<Thread> started = start(threads, number -> {
            Lock own = service.open("pairs-" + number);
            own.lock(); // the first pair does more, and is not measured
            own.unlock();
            ready.await();
            long until = System.nanoTime() + spanMs * 1000000;
            while (System.nanoTime() < until) {
                long began = System.nanoTime();
                own.lock();
                own.unlock();
                if (counts[number] < micros[number].length) {
                    micros[number][counts[number]++] =
                        (System.nanoTime() - began) / 1000.0;
                }
            }
            long now = System.nanoTime();
            ended.accumulateAndGet(now, Math::max);
            own.close();
        });
        ready.await();
        long began = System.nanoTime();
        join(started);
        double seconds = (ended.get() - began) / 1e9;
        double[] all = new double[Arrays.stream(counts).sum()];
        int at = 0;
        for (int i = 0; i < threads; i++) {
            System.arraycopy(micros[i], 0, all, at, counts[i]);
            at += counts[i];
        }
        return all.length / seconds / 1000 + " " + quantiles(all);
    }

    /** The first hand-overs, one for each thread, are not counted. */
    private static String handover(int waiters, int count, long holdMs)
            throws Exception {
        int threads = waiters + 1;
        double[] micros = new double[count];
        int[] taken = new int[threads];
        AtomicLong given = new AtomicLong();
        AtomicInteger passed = new AtomicInteger(-threads);
        CyclicBarrier ready = new CyclicBarrier(threads);
        join(start(threads, number -> {
            Lock baton = service.open("baton");
            ready.await();
            while (passed.get() < count) {
                baton.lock();
                int turn = passed.get();
                if (turn >= 0 && turn < count) {
                    micros[turn] = (System.nanoTime() - given.get()) / 1000.0;
                    taken[number]++;
                }
                Thread.sleep(holdMs);
                passed.set(turn + 1);
                given.set(System.nanoTime());
                baton.unlock();
            }
            baton.close();
        }));
        return quantiles(micros) + " " + Arrays.stream(taken).min().getAsInt()
            + " " + Arrays.stream(taken).max().getAsInt();
    }

    private static String leader() throws Exception {
        for (int i = 0; i < ports.length; i++) {
            try {
                if (service.leads(ports[i])) {
                    return "" + i;
                }
            } catch (Exception e) {
                // that server is down
            }
        }
        return "-1";
    }

    /** A lock may still be granted after its attempt was given up, so each
     * attempt uses a new key. */
    private static String first() throws Exception {
        AtomicLong came = new AtomicLong();
        for (int i = 0; came.get() == 0; i++) {
            String key = "first-" + System.nanoTime();
            Thread attempt = new Thread(() -> {
                try {
                    Lock lock = service.open(key);
                    lock.lock();
                    came.compareAndSet(0, System.nanoTime());
                    lock.unlock();
                } catch (Exception e) {
                    // another attempt follows
                }
            });
            attempt.setDaemon(true);
            attempt.start();
            long until = System.nanoTime() + ATTEMPT_MS * 1000000L;
            while (attempt.isAlive() && System.nanoTime() < until) {
                attempt.join(1);
            }
            if (came.get() == 0 && !attempt.isAlive()) {
                Thread.sleep(20);
            }
        }
        return "" + came.get();
    }

    private static String obey(String[] words) throws Exception {
        switch (words[0]) {
        case "leader":
            return leader();
        case "pairs":
            return pairs(Integer.parseInt(words[1]), Long.parseLong(words[2]));
        case "handover":
            return handover(Integer.parseInt(words[1]),
                Integer.parseInt(words[2]), Long.parseLong(words[3]));
        case "first":
            return first();
        default:
            throw new IllegalArgumentException(words[0]);
        }
    }

    public static void main(String[] args) throws Exception {
        LogManager.getLogManager().reset(); // the libraries log nothing
        ports = Arrays.stream(args[1].split(",")).mapToInt(Integer::parseInt)
            .toArray();
        service = args[0].equals("etcd") ? new Etcd() : new ZooKeeper();
        BufferedReader orders =
            new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = orders.readLine()) != null;) {
            System.out.println(obey(line.split(" ")));
            System.out.flush();
        }
        System.exit(0);
    }
}
