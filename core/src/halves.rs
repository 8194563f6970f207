//! Floats in 16 bits, the form in which models are stored.

/// The float of `half`, which is finite. Exact, because every half is a float.
#[inline(always)]
pub fn widen(half: u16) -> f32 {
    let sign = u32::from(half & 0x8000) << 16;
    // Exponent and fraction in the places of a float. The exponent's bias differs by 112; the product is exact.
    let magnitude = f32::from_bits(u32::from(half & 0x7fff) << 13) * f32::from_bits((127 + 112) << 23);
    f32::from_bits(magnitude.to_bits() | sign)
}

/// Whether `half` is neither infinite nor NaN.
pub fn is_finite(half: u16) -> bool {
    half & 0x7c00 != 0x7c00
}

#[cfg(test)]
mod tests {
    use super::{is_finite, widen};

    /// The definition of the format, in double precision.
    fn defined(half: u16) -> f64 {
        let sign = if half & 0x8000 == 0 { 1.0 } else { -1.0 };
        let exponent = i32::from((half >> 10) & 0x1f);
        let fraction = f64::from(half & 0x3ff);
        let magnitude = if exponent == 0 {
            fraction * f64::powi(2.0, -24)
        } else {
            (1024.0 + fraction) * f64::powi(2.0, exponent - 25)
        };
        sign * magnitude
    }

    #[test]
    fn every_finite_half_is_exact() {
        for half in (0..=u16::MAX).filter(|half| is_finite(*half)) {
            assert_eq!(f64::from(widen(half)), defined(half), "{half:04x}");
        }
        assert!(!is_finite(0x7c00) && !is_finite(0xfc01));
    }
}
