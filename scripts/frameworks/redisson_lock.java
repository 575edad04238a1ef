// Redisson RLock: exclusion of two processes, expiry, a lock that its watchdog extends, over the kill.
// packages: org.redisson:redisson
// kind: lock
// workers: 2
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

public class Main {
    static boolean taken(RedissonClient client, String name) throws Exception {
        boolean[] result = new boolean[1];
        Thread other = new Thread(() -> result[0] = client.getLock(name).tryLock());
        other.start();
        other.join();
        return result[0];
    }

    public static void main(String[] args) throws Exception {
        Config config = new Config();
        config.setLockWatchdogTimeout(6000);
        config.useSingleServer().setAddress("redis://127.0.0.1:" + Journal.PORT)
            .setConnectionMinimumIdleSize(2).setConnectionPoolSize(8);
        RedissonClient client = Redisson.create(config);
        if (args[0].equals("work")) {
            RLock lock = client.getLock("counter");
            for (boolean more = true; more; Thread.sleep(5)) {
                try {
                    lock.lock(5, TimeUnit.SECONDS);
                    more = Journal.count();
                    lock.unlock();
                } catch (Exception error) {
                    System.err.println(error);
                    Thread.sleep(200);
                }
            }
            Thread.sleep(Long.MAX_VALUE);
        }
        RLock held = client.getLock("held");
        held.lock();
        RLock brief = client.getLock("short");
        brief.lock(2, TimeUnit.SECONDS);
        Journal.expect(!taken(client, "short"), "a lock was given to two");
        brief.lock(3, TimeUnit.SECONDS);
        Thread.sleep(2200);
        Journal.expect(!taken(client, "short"), "a lock that was taken again has expired too early");
        Thread.sleep(1200);
        Journal.expect(taken(client, "short"), "a lock has not expired");
        Journal.waitFor(Journal::startedAgain);
        Journal.waitFor(() -> held.remainTimeToLive() > 0);
        // It would have expired, if the watchdog did not extend it.
        Thread.sleep(7000);
        Journal.expect(!taken(client, "held"), "a lock that is held was given to another");
        held.unlock();
        Journal.expect(taken(client, "held"), "a lock was not released");
        Journal.waitForCount();
        System.out.println("expiry, reentrance, a lock held over the kill by its watchdog");
        System.exit(0);
    }
}
