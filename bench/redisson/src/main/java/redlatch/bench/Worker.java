package redlatch.bench;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * One process of a measurement whose contender is Redisson. It speaks the lines that the Go package
 * bench/internal/work describes: a spec comes, "ready" goes out, "go" and "stop" come, the result goes out.
 */
public final class Worker {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Worker() {}

    /** Serves standard input and ends with it. */
    public static void main(String[] args) throws IOException {
        // The protocol owns the real standard output; whatever a library prints goes to stderr.
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try {
            run(in, out);
        } catch (Exception e) {
            e.printStackTrace();
            say(out, JSON.createObjectNode().set("Result", JSON.createObjectNode().put("Err", String.valueOf(e))));
            Runtime.getRuntime().halt(1);
        }
        // Redisson's threads are of no use to anybody any more.
        Runtime.getRuntime().halt(0);
    }

    private static void run(BufferedReader in, PrintStream out) throws Exception {
        JsonNode spec = JSON.readTree(in.readLine());
        RedissonClient client = open(spec);
        Job job = job(spec, client);
        job.start();
        Thread.sleep(spec.get("WarmUp").asLong() / 1_000_000);
        say(out, JSON.createObjectNode().put("Ready", true));

        in.readLine(); // "go"
        long cpu = cpuNs();
        long start = System.nanoTime();
        job.phase = Job.Phase.COUNTING;
        in.readLine(); // "stop", or the parent has gone
        job.phase = Job.Phase.ENDED;
        job.board.over();
        ObjectNode result = JSON.createObjectNode();
        result.put("Elapsed", System.nanoTime() - start);
        result.put("CPU", cpuNs() - cpu);
        job.finish(result);
        say(out, JSON.createObjectNode().set("Result", result));
    }

    private static Job job(JsonNode spec, RedissonClient client) throws IOException {
        Board board = new Board(spec.get("Board").asText());
        String key = spec.get("Key").asText();
        int process = spec.get("Process").asInt();
        switch (spec.get("Workload").asText()) {
            case "handover":
                return new HandoverJob(board, lock(client, spec, key), process);
            case "pairs":
                boolean ownKeys = spec.get("OwnKeys").asBoolean();
                List<RLock> locks = new ArrayList<>();
                for (int g = 0; g < spec.get("Goroutines").asInt(); g++) {
                    locks.add(lock(client, spec, ownKeys ? key + ":" + process + ":" + g : key));
                }
                return new PairsJob(board, locks, ownKeys);
            default:
                throw new IllegalArgumentException("no workload for Redisson: " + spec.get("Workload"));
        }
    }

    private static void say(PrintStream out, JsonNode line) {
        out.print(line + "\n");
        out.flush();
    }

    private static RedissonClient open(JsonNode spec) {
        Config config = new Config();
        config.setLockWatchdogTimeout(spec.get("Lease").asLong() / 1_000_000);
        // Several of these processes share few cores: its defaults of 16 and 32 threads are slower there.
        config.setThreads(4);
        config.setNettyThreads(4);
        config.useSingleServer()
                .setAddress("redis://" + spec.get("Addrs").get(0).asText())
                .setConnectionMinimumIdleSize(4);
        return Redisson.create(config);
    }

    private static RLock lock(RedissonClient client, JsonNode spec, String key) {
        return spec.get("Contender").asText().endsWith("-fair") ? client.getFairLock(key) : client.getLock(key);
    }

    private static long cpuNs() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }
}
