//! Pseudo-random numbers that are stable: the same input gives the same result on every node, in every
//! release.
//!
//! The standard library's hashers do not guarantee this, so the function is written out here. Changing it
//! would move every `H`, every jittered start and every retry of every user.

/// Spreads the bits of a number over all 64 (one step of the SplitMix64 generator). Neighbours, such as two
/// consecutive nominal times, give unrelated results, and no two inputs give the same result.
pub const fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
