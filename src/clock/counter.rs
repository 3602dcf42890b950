//! The time-stamp counter of `x86_64` processors, on Linux. On other platforms, in Miri and in loom
//! models, there is no counter.
//!
//! A fast clock uses the counter if the counter is invariant and the kernel's own clock uses it. An
//! *invariant* counter runs at one speed in every power state of the processor. The kernel stops
//! using a counter that jumps or differs between cores. If `/sys` does not name the kernel's clock,
//! an invariant counter suffices.

#[cfg(all(
    target_arch = "x86_64",
    target_os = "linux",
    not(miri),
    not(all(loom, feature = "models"))
))]
mod tsc {
    #![allow(unsafe_code)]

    use std::{
        arch::x86_64::{__cpuid, _mm_lfence, _rdtsc},
        fs,
        sync::OnceLock,
    };

    const CLOCK_SOURCE_PATH: &str =
        "/sys/devices/system/clocksource/clocksource0/current_clocksource";

    /// The CPUID leaf that returns the number of the highest extended leaf.
    const HIGHEST_EXTENDED_LEAF: u32 = 0x8000_0000;
    const POWER_MANAGEMENT_LEAF: u32 = 0x8000_0007;
    const INVARIANT_TSC_BIT: u32 = 1 << 8;

    pub(in super::super) fn is_usable() -> bool {
        // The result is cached, because CPUID is slow under a hypervisor.
        static TSC_IS_USABLE: OnceLock<bool> = OnceLock::new();
        *TSC_IS_USABLE.get_or_init(|| is_invariant() && kernel_uses_counter())
    }

    fn is_invariant() -> bool {
        cpuid_leaf(HIGHEST_EXTENDED_LEAF).eax >= POWER_MANAGEMENT_LEAF
            && cpuid_leaf(POWER_MANAGEMENT_LEAF).edx & INVARIANT_TSC_BIT != 0
    }

    fn kernel_uses_counter() -> bool {
        fs::read_to_string(CLOCK_SOURCE_PATH).map_or(true, |name| name.trim() == "tsc")
    }

    #[allow(unused_unsafe)] // `__cpuid` is safe in newer toolchains.
    fn cpuid_leaf(number: u32) -> std::arch::x86_64::CpuidResult {
        // SAFETY: every x86_64 processor has `cpuid`, which accesses no memory.
        unsafe { __cpuid(number) }
    }

    #[inline]
    pub(in super::super) fn read() -> u64 {
        // If Linux has disabled `rdtsc` for the process, this instruction ends the process.
        // SAFETY: every x86_64 processor has `rdtsc`, which accesses no memory.
        unsafe { _rdtsc() }
    }

    pub(in super::super) fn read_ordered() -> u64 {
        // `lfence` waits for all earlier instructions, so the counter is read after them.
        // SAFETY: every x86_64 processor has `lfence`.
        unsafe { _mm_lfence() };
        read()
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn an_invariant_counter_that_the_kernel_uses_is_usable() {
            let source = fs::read_to_string(CLOCK_SOURCE_PATH);
            let Ok(processors) = fs::read_to_string("/proc/cpuinfo") else { return };
            let is_invariant = ["constant_tsc", "nonstop_tsc"]
                .iter()
                .all(|flag| processors.split_whitespace().any(|word| word == *flag));
            let kernel_uses_counter = source.is_ok_and(|name| name.trim() == "tsc");
            assert!(!is_invariant || !kernel_uses_counter || is_usable());
            assert!(is_invariant || !is_usable());
        }
    }
}

#[cfg(not(all(
    target_arch = "x86_64",
    target_os = "linux",
    not(miri),
    not(all(loom, feature = "models"))
)))]
mod tsc {
    pub(in super::super) fn is_usable() -> bool {
        false
    }

    pub(in super::super) fn read() -> u64 {
        0
    }

    pub(in super::super) fn read_ordered() -> u64 {
        0
    }
}

pub(super) use self::tsc::is_usable;
/// Reads the counter. The processor may read the counter before earlier instructions have
/// completed.
pub(super) use self::tsc::read;
/// Reads the counter after all earlier instructions have completed.
pub(super) use self::tsc::read_ordered;
