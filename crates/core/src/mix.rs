//! Numbers that look random and are not: the same input gives the same answer on every node, in every release.
//!
//! The standard library's hashers promise no such thing, so the function is written out here; changing it would
//! move every `H`, every jittered start and every retry of every user.

/// Spreads the bits of a number over all 64 (one step of the SplitMix64 generator): neighbours such as two
/// consecutive nominal times come out unrelated, and no two numbers come out the same.
pub const fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
