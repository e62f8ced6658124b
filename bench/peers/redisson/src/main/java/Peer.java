import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Redisson's locks, measured as bench/redis measures ours: one client with its
 * pool of connections, as programs use it, and many threads.
 *
 * <p>Peer PORT LEASE_MS [hold]: with "hold", take both locks that "await" waits
 * for, say so, and keep them until killed. Else answer orders, a line each:
 *
 * <pre>
 *   pairs KIND THREADS SPAN_MS     1000 pairs/s, p50 and p99 in µs
 *   handover KIND THREADS COUNT    p50 and p99 in µs
 *   await                          "waiting", then when each lock came, in ns
 *                                  of the monotonic clock
 * </pre>
 *
 * KIND is "lock", an RLock, or "fair", an RFairLock. Leases are renewed by
 * Redisson's watchdog in either case.
 */
public final class Peer {
    private static final String[] KINDS = {"lock", "fair"};
    private static final int SAMPLES = 200000;

    private static RedissonClient client;

    private interface Work {
        void run(int number) throws Exception;
    }

    private static RLock lock(String kind, String key) {
        return kind.equals("fair")
            ? client.getFairLock(key) : client.getLock(key);
    }

    private static List<Thread> start(int threads, Work work) {
        List<Thread> started = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            int number = i;
            Thread thread = new Thread(() -> {
                try {
                    work.run(number);
                } catch (Exception e) {
                    fail(e);
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

    private static void fail(Exception e) {
        e.printStackTrace();
        System.exit(1);
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

    private static String pairs(String kind, int threads, long spanMs)
            throws Exception {
        double[][] micros = new double[threads][SAMPLES / threads];
        int[] counts = new int[threads];
        CyclicBarrier ready = new CyclicBarrier(threads + 1);
        List<Thread> started = start(threads, number -> {
            RLock own = lock(kind, "redisson-" + kind + "-" + number);
            own.lock(); // what is done once is not measured
            own.unlock();
            ready.await();
            long until = System.nanoTime() + spanMs * 1000000;
            while (System.nanoTime() < until) {
                long began = System.nanoTime();
                own.lock();
                own.unlock();
                if (counts[number] < micros[number].length) {
                    micros[number][counts[number]] =
                        (System.nanoTime() - began) / 1000.0;
                }
                counts[number]++;
            }
        });
        ready.await();
        long began = System.nanoTime();
        join(started);
        double seconds = (System.nanoTime() - began) / 1e9;
        int pairs = Arrays.stream(counts).sum();
        double[] all = new double[
            Arrays.stream(counts).map(n -> Math.min(n, SAMPLES / threads)).sum()];
        int at = 0;
        for (int i = 0; i < threads; i++) {
            int kept = Math.min(counts[i], micros[i].length);
            System.arraycopy(micros[i], 0, all, at, kept);
            at += kept;
        }
        return pairs / seconds / 1000 + " " + quantiles(all);
    }

    /** The first hand-overs, one for each thread, are not counted. */
    private static String handover(String kind, int threads, int count)
            throws Exception {
        String key = "redisson-baton-" + kind;
        double[] micros = new double[count];
        AtomicLong given = new AtomicLong();
        AtomicInteger passed = new AtomicInteger(-threads);
        CyclicBarrier ready = new CyclicBarrier(threads);
        join(start(threads, number -> {
            RLock baton = lock(kind, key);
            ready.await();
            while (passed.get() < count) {
                baton.lock();
                int turn = passed.get();
                if (turn >= 0 && turn < count) {
                    micros[turn] = (System.nanoTime() - given.get()) / 1000.0;
                }
                passed.set(++turn);
                given.set(System.nanoTime());
                baton.unlock();
                // An RLock may be taken again by who has just given it: stand
                // back until another has it, or this is no hand-over.
                while (passed.get() == turn && turn < count) {
                    LockSupport.parkNanos(200000);
                }
            }
        }));
        return quantiles(micros);
    }

    private static void hold() throws Exception {
        for (String kind : KINDS) {
            lock(kind, "redisson-killed-" + kind).lock();
        }
        say("held");
        Thread.sleep(Long.MAX_VALUE);
    }

    private static String await() throws Exception {
        long[] came = new long[KINDS.length];
        List<Thread> waiting = start(KINDS.length, number -> {
            RLock killed = lock(KINDS[number], "redisson-killed-" + KINDS[number]);
            killed.lock();
            came[number] = System.nanoTime();
            killed.unlock();
        });
        say("waiting");
        join(waiting);
        return came[0] + " " + came[1];
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static String obey(String[] words) throws Exception {
        switch (words[0]) {
        case "pairs":
            return pairs(words[1], Integer.parseInt(words[2]),
                Long.parseLong(words[3]));
        case "handover":
            return handover(words[1], Integer.parseInt(words[2]),
                Integer.parseInt(words[3]));
        case "await":
            return await();
        default:
            throw new IllegalArgumentException(words[0]);
        }
    }

    public static void main(String[] args) throws Exception {
        Config config = new Config();
        config.useSingleServer().setAddress("redis://127.0.0.1:" + args[0]);
        config.setLockWatchdogTimeout(Long.parseLong(args[1]));
        client = Redisson.create(config);
        if (args.length > 2) {
            hold();
        }
        BufferedReader orders =
            new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = orders.readLine()) != null;) {
            say(obey(line.split(" ")));
        }
        client.shutdown();
        System.exit(0);
    }
}
