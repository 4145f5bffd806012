package luascript

import "strings"

// Slot is the Redis Cluster hash slot of key: CRC16 (XMODEM) of the hash tag, or
// of the whole key when it has no tag, modulo 16384.
// https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/
func Slot(key string) uint16 {
	if i := strings.IndexByte(key, '{'); i >= 0 {
		if j := strings.IndexByte(key[i+1:], '}'); j > 0 {
			key = key[i+1 : i+1+j]
		}
	}
	var crc uint16
	for i := 0; i < len(key); i++ {
		crc = crc<<8 ^ crc16[byte(crc>>8)^key[i]]
	}
	return crc & 0x3fff
}

var crc16 = func() (t [256]uint16) {
	const poly = 0x1021
	for i := range t {
		crc := uint16(i) << 8 // #nosec G115 -- i < 256
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ poly
			} else {
				crc <<= 1
			}
		}
		t[i] = crc
	}
	return t
}()
