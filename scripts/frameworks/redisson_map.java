// Redisson RMap: a map, a map whose entries expire, a counter, a queue that blocks and a topic, over the kill.
// packages: org.redisson:redisson
// kill: 40
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RAtomicLong;
import org.redisson.api.RBlockingQueue;
import org.redisson.api.RMap;
import org.redisson.api.RMapCache;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

public class Main {
    public static void main(String[] args) throws Exception {
        Config config = new Config();
        config.useSingleServer().setAddress("redis://127.0.0.1:" + Journal.PORT)
            .setConnectionMinimumIdleSize(2).setConnectionPoolSize(8);
        RedissonClient client = Redisson.create(config);
        RMap<String, Integer> map = client.getMap("map");
        RMapCache<String, Integer> cache = client.getMapCache("cache");
        RAtomicLong counter = client.getAtomicLong("counter");
        BlockingQueue<Integer> heard = new LinkedBlockingQueue<>();
        client.getTopic("topic").addListener(Integer.class, (channel, number) -> heard.add(number));
        cache.put("brief", 1, 1, TimeUnit.SECONDS);
        counter.set(5);
        for (int i = 0; i < 60; i++) {
            int number = i;
            Journal.waitFor(() -> {
                map.fastPut("key" + number, number);
                cache.fastPut("key" + number, number, 10, TimeUnit.MINUTES);
                return true;
            });
            Journal.write("done", i);
            Thread.sleep(20);
        }
        Journal.waitFor(Journal::startedAgain);
        Journal.waitFor(() -> map.size() == 60);
        Journal.expect(cache.get("brief") == null, "an entry has not expired");
        // Redisson removes what has expired after some seconds.
        Journal.waitFor(() -> cache.size() == 60);
        for (int i = 0; i < 60; i++) {
            Journal.expect(map.get("key" + i) == i && cache.get("key" + i) == i, "an entry is missing");
        }
        Journal.expect(map.putIfAbsent("key1", 7) == 1
            && map.replace("key2", 2, 9) && map.remove("key3") == 3, "operations of the map");
        Journal.expect(counter.incrementAndGet() == 6 && counter.compareAndSet(6, 9), "the counter");
        RBlockingQueue<Integer> queue = client.getBlockingQueue("queue");
        new Thread(() -> queue.add(8)).start();
        Journal.expect(Integer.valueOf(8).equals(queue.poll(10, TimeUnit.SECONDS)), "the queue");
        // The listener subscribes again by itself.
        Journal.waitFor(() -> {
            client.getTopic("topic").publish(3);
            return heard.poll(1, TimeUnit.SECONDS) != null;
        });
        System.out.println("120 entries, expiry, a counter, a queue, a topic");
        System.exit(0);
    }
}
