package redlatch.interop;

import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/**
 * The locks that one owner uses, by the way they are written in a command.
 *
 * <p>{@code kind:name} or {@code kind@client:name}, kind being rlock, fair, fenced, read
 * or write; {@code multi:lock+lock+...} for a multi-lock. Names are percent-encoded.
 * Each owner keeps its lock objects, as a service does, because Redisson keeps the
 * last fixed lease in the object.
 */
final class Locks {
    private final Clients clients;
    private final Map<String, RLock> locks = new HashMap<>();

    Locks(Clients clients) {
        this.clients = clients;
    }

    RLock get(String spec) {
        return locks.computeIfAbsent(spec, this::make);
    }

    RFencedLock fenced(String spec) {
        return (RFencedLock) get(spec);
    }

    private RLock make(String spec) {
        if (spec.startsWith("multi:")) {
            RLock[] members = Arrays.stream(spec.substring("multi:".length()).split("\\+"))
                    .map(this::make).toArray(RLock[]::new);
            return clients.get(0).getMultiLock(members);
        }
        int colon = spec.indexOf(':');
        String kind = spec.substring(0, colon);
        String name = URLDecoder.decode(spec.substring(colon + 1), StandardCharsets.UTF_8);
        int at = kind.indexOf('@');
        RedissonClient client = clients.get(at < 0 ? 0 : Integer.parseInt(kind.substring(at + 1)));
        return switch (at < 0 ? kind : kind.substring(0, at)) {
            case "rlock" -> client.getLock(name);
            case "fair" -> client.getFairLock(name);
            case "fenced" -> client.getFencedLock(name);
            case "read" -> client.getReadWriteLock(name).readLock();
            case "write" -> client.getReadWriteLock(name).writeLock();
            default -> throw new IllegalArgumentException("unknown kind in " + spec);
        };
    }

    /** "r" when the lock admits others of its sort, else "w": how a section is recorded. */
    static String mode(String spec) {
        return spec.startsWith("read:") || spec.startsWith("read@") ? "r" : "w";
    }

    /** The names (still encoded) that a lock covers, joined by commas: how a section is recorded. */
    static String names(String spec) {
        String rest = spec.startsWith("multi:") ? spec.substring("multi:".length()) : spec;
        String[] parts = rest.split("\\+");
        for (int i = 0; i < parts.length; i++) {
            parts[i] = parts[i].substring(parts[i].indexOf(':') + 1);
        }
        return String.join(",", parts);
    }
}
