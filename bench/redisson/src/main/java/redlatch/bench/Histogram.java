package redlatch.bench;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

/** The buckets of the Go histogram: log-linear, 128 to each power of two nanoseconds. */
final class Histogram {
    private static final int SUB_BITS = 7;
    private static final int SUB_BUCKETS = 1 << SUB_BITS;
    private final long[] counts = new long[(40 - SUB_BITS + 1) * SUB_BUCKETS];
    private long sumNs;
    private long maxNs;

    void add(long ns) {
        long v = Math.max(ns, 0);
        counts[Math.min(bucketOf(v), counts.length - 1)]++;
        sumNs += v;
        maxNs = Math.max(maxNs, v);
    }

    void merge(Histogram other) {
        for (int i = 0; i < counts.length; i++) {
            counts[i] += other.counts[i];
        }
        sumNs += other.sumNs;
        maxNs = Math.max(maxNs, other.maxNs);
    }

    private static int bucketOf(long v) {
        if (v < SUB_BUCKETS) {
            return (int) v;
        }
        int shift = 64 - Long.numberOfLeadingZeros(v) - SUB_BITS - 1;
        return (shift + 1) * SUB_BUCKETS + (int) (v >> shift) - SUB_BUCKETS;
    }

    void write(ObjectNode to) {
        ArrayNode buckets = to.putArray("Buckets");
        for (int i = 0; i < counts.length; i++) {
            if (counts[i] > 0) {
                buckets.add(i).add(counts[i]);
            }
        }
        to.put("SumNs", sumNs).put("MaxNs", maxNs);
    }
}
