//! Hashes the keys of a purgatory with a secret, so that clients cannot choose keys that collide.
//!
//! The words that a key's `Hash` writes are the coefficients of a polynomial. The hash evaluates
//! this polynomial at a secret point, modulo the prime 2^61 - 1. Each purgatory and each group has
//! its own random secret point. Two different keys of at most `n` coefficients have the same value
//! at no more than `n` of the 2^60 possible points. For some secret points, the values of keys in
//! an arithmetic progression have equal low bits, so `finish` mixes the bits.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};

const MODULUS: u64 = (1 << 61) - 1;

/// Words of at least this value are split into two coefficients. The first coefficient has bit 58
/// set, so it differs from a word that is not split.
const SPLIT_THRESHOLD: u64 = 1 << 58;

/// Creates the hashers of one purgatory or one group.
pub(super) struct BuildKeyHasher {
    /// Below 2^60, so that the addition in [`KeyHasher::append_coefficient`] does not overflow.
    secret_point: u64,
}

impl BuildKeyHasher {
    pub(super) fn new() -> Self {
        Self { secret_point: RandomState::new().hash_one(()) >> 4 }
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation)] // `finish` mixes the low half best.
    pub(super) fn hash_u32(&self, key: &(impl Hash + ?Sized)) -> u32 {
        self.hash_one(key) as u32
    }
}

impl BuildHasher for BuildKeyHasher {
    type Hasher = KeyHasher;

    #[inline]
    fn build_hasher(&self) -> KeyHasher {
        KeyHasher { secret_point: self.secret_point, polynomial_value: 1 }
    }
}

pub(super) struct KeyHasher {
    secret_point: u64,
    /// The value of the polynomial so far, possibly plus a small multiple of the prime.
    polynomial_value: u64,
}

impl KeyHasher {
    /// Appends a coefficient, which must be below 2^59.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // The product is below 2^124.
    fn append_coefficient(&mut self, coefficient: u64) {
        let product =
            u128::from(self.polynomial_value + coefficient) * u128::from(self.secret_point);
        self.polynomial_value = (product as u64 & MODULUS) + (product >> 61) as u64;
    }
}

impl Hasher for KeyHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(7) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            // Marks the end of the chunk, so that chunks that differ only in their trailing zero
            // bytes give different words.
            word[chunk.len()] = 1;
            self.append_coefficient(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u8(&mut self, word: u8) {
        self.append_coefficient(word.into());
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.append_coefficient(word.into());
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        if word < SPLIT_THRESHOLD {
            self.append_coefficient(word);
        } else {
            self.append_coefficient(SPLIT_THRESHOLD | word & u64::from(u32::MAX));
            self.append_coefficient(word >> 32);
        }
    }

    #[inline]
    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        let mixed = (self.polynomial_value ^ (self.polynomial_value >> 32))
            .wrapping_mul(0x9E37_79B9_7F4A_7C15);
        // Swaps the halves: the table uses the low bits, but the high bits of `mixed` depend on
        // more bits of `polynomial_value`.
        mixed.rotate_left(32)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Returns the largest number of keys whose hashes agree in the low `bits` bits.
    fn longest_chain(hash: &BuildKeyHasher, keys: &[u64], bits: u32) -> usize {
        let mut chains = vec![0_usize; 1 << bits];
        for key in keys {
            chains[usize::try_from(hash.hash_one(key) % (1 << bits)).expect("few")] += 1;
        }
        chains.into_iter().max().unwrap_or(0)
    }

    #[test]
    fn keys_chosen_against_one_purgatory_do_not_collide_in_another() {
        let (known_hasher, secret_hasher) = (BuildKeyHasher::new(), BuildKeyHasher::new());
        let chosen_keys: Vec<u64> =
            (0..).filter(|key| known_hasher.hash_one(key) % 1_024 == 7).take(64).collect();
        assert_eq!(longest_chain(&known_hasher, &chosen_keys, 10), 64);
        assert!(longest_chain(&secret_hasher, &chosen_keys, 10) < 16);
    }

    /// 1,024 random keys in 1,024 chains rarely form a chain longer than 8.
    #[test]
    fn keys_in_a_progression_are_spread() {
        let steps =
            [1, 2, 1_000, 1 << 10, 1 << 20, 1 << 32, 1 << 44, MODULUS / 1_024, u64::MAX / 1_024];
        let rounds = if cfg!(miri) { 2 } else { 500 };
        for hash in (0..rounds).map(|_| BuildKeyHasher::new()) {
            for step in steps {
                let keys: Vec<u64> = (0..1_024).map(|key: u64| key.wrapping_mul(step)).collect();
                let longest = longest_chain(&hash, &keys, 10);
                assert!(longest < 20, "{longest} keys in a chain, multiples of {step}");
            }
        }
    }

    fn count_hashes<K: Hash>(hash: &BuildKeyHasher, keys: impl IntoIterator<Item = K>) -> usize {
        keys.into_iter().map(|key| hash.hash_one(key)).collect::<HashSet<_>>().len()
    }

    #[test]
    fn different_keys_have_different_hashes() {
        let hash = BuildKeyHasher::new();
        let zeros = [0_u8; 64];
        assert_eq!(count_hashes(&hash, (0..64).map(|length| &zeros[..length])), 64);
        assert_eq!(count_hashes(&hash, (0..64).map(|length| "x".repeat(length))), 64);
        assert_eq!(count_hashes(&hash, [(0_u8, 1_u32), (1, 0), (1, 1), (0, 0)]), 4);
        let split = [SPLIT_THRESHOLD - 1, SPLIT_THRESHOLD, SPLIT_THRESHOLD | 1];
        let words = [0, 1, MODULUS, MODULUS + 1, u64::MAX].into_iter().chain(split);
        assert_eq!(count_hashes(&hash, words), 8);
        assert_eq!(hash.hash_one("the same"), hash.hash_one(String::from("the same")));
    }

    #[test]
    fn long_keys_do_not_overflow() {
        let hash = BuildKeyHasher { secret_point: (1 << 60) - 1 };
        assert_ne!(hash.hash_one(vec![u8::MAX; 10_000]), hash.hash_one(vec![u64::MAX; 10_000]));
    }
}
