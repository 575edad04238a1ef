// Jedis: its client for Sentinel, or for clusters, on members that fail over. See clients_failover.py.
// packages: redis.clients:jedis

import java.io.FileWriter;
import java.util.HashSet;
import java.util.Locale;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import redis.clients.jedis.AbstractTransaction;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.RedisClusterClient;
import redis.clients.jedis.RedisSentinelClient;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisException;

public class Main {
    interface Request {
        long run();
    }

    static final String COUNTER = "{jedis}:count";
    static UnifiedJedis client;

    /** A client asks the nodes when it is made, so that may fail as well. */
    static UnifiedJedis connected() {
        if (client == null) {
            Set<HostAndPort> nodes = new HashSet<>();
            for (String node : System.getenv("NODES").split(",")) nodes.add(HostAndPort.from(node));
            JedisClientConfig config = DefaultJedisClientConfig.builder()
                .connectionTimeoutMillis(1000).socketTimeoutMillis(1000).build();
            client = System.getenv("MODE").equals("sentinel")
                ? RedisSentinelClient.builder().masterName(System.getenv("NAME")).sentinels(nodes)
                    .clientConfig(config).sentinelClientConfig(config).build()
                : RedisClusterClient.builder().nodes(nodes).clientConfig(config).build();
        }
        return client;
    }

    static long move(int accounts) {
        int a = ThreadLocalRandom.current().nextInt(accounts);
        int b = (a + 1 + ThreadLocalRandom.current().nextInt(accounts - 1)) % accounts;
        if (!System.getenv("MODE").equals("sentinel")) return script(a, b);
        try (AbstractTransaction transaction = connected().multi()) {
            transaction.decrBy("{bank}:" + a, 3);
            transaction.incrBy("{bank}:" + b, 3);
            for (Object reply : transaction.exec()) {
                if (reply instanceof JedisDataException) throw (JedisDataException) reply;
            }
        }
        return 0;
    }

    /** The transfer as a script, since the client for clusters has no transactions of several nodes. */
    static long script(int a, int b) {
        String text = "redis.call('decrby', KEYS[1], 3) redis.call('incrby', KEYS[2], 3)";
        connected().eval(text, 2, "{bank}:" + a, "{bank}:" + b);
        return 0;
    }

    static String kind(JedisException error) {
        String name = error.getClass().getSimpleName();
        return error.getClass() == JedisDataException.class ? name + ":" + error.getMessage().split(" ")[0] : name;
    }

    public static void main(String[] arguments) throws Exception {
        int accounts = Integer.parseInt(System.getenv("ACCOUNTS"));
        String[] names = {"incr", "get", "move"};
        Request[] requests = {
            () -> connected().incr(COUNTER),
            () -> {
                String value = connected().get(COUNTER);
                return value == null ? 0 : Long.parseLong(value);
            },
            () -> move(accounts),
        };
        try (FileWriter journal = new FileWriter(System.getenv("JOURNAL"), true)) {
            for (int at = 0;; at = (at + 1) % names.length) {
                double began = System.currentTimeMillis() / 1000.0;
                String result;
                try {
                    result = "ok " + requests[at].run();
                } catch (JedisException error) {
                    result = "error " + kind(error);
                }
                double ended = System.currentTimeMillis() / 1000.0;
                journal.write(String.format(Locale.ROOT, "%.6f %.6f %s %s\n", began, ended, names[at], result));
                journal.flush();
                Thread.sleep(result.startsWith("error") ? 10 : 4);
            }
        }
    }
}
