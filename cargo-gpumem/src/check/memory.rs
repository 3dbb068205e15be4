//! Memory of the machine, so that a model that is too large for it is refused before the system ends the process.
//!
//! Linux tells it in files. On other systems only the allocator refuses.

use crate::Failure;
use crate::text::bytes;
use std::fs::read_to_string;

/// Fails if the machine has less free memory than is needed.
pub fn refuse_too_large(needed: u64, samples: u64) -> Result<(), Failure> {
    refuse(needed, samples, available())
}

fn refuse(needed: u64, samples: u64, free: Option<u64>) -> Result<(), Failure> {
    let Some(free) = free.filter(|free| *free < needed) else { return Ok(()) };
    let smaller = if samples > 1 { "record fewer samples, or " } else { "" };
    Err(format!(
        "the check needs at least {} of memory for {samples} samples, and {} are free; {smaller}check it on a larger machine",
        bytes(needed),
        bytes(free)
    )
    .into())
}

/// Returns the bytes that a process may still take. `None` if the system does not tell.
fn available() -> Option<u64> {
    let free = read_to_string("/proc/meminfo").ok().and_then(|text| mem_available(&text));
    let control = |name: &str| read_to_string(format!("/sys/fs/cgroup/{name}")).ok();
    let limit = control("memory.max").zip(control("memory.current")).zip(control("memory.stat"));
    let group = limit.and_then(|((max, current), stat)| group_available(&max, &current, &stat));
    free.into_iter().chain(group).min()
}

/// Returns the bytes that `/proc/meminfo` calls available.
fn mem_available(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the bytes that a control group has left. Files that are cached count as free. `None` for a group without a limit.
fn group_available(max: &str, current: &str, stat: &str) -> Option<u64> {
    let cached = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.trim().parse::<u64>().ok());
    let used = current.trim().parse::<u64>().ok()?.saturating_sub(cached.unwrap_or(0));
    Some(max.trim().parse::<u64>().ok()?.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_linux_are_read() {
        let text = "MemTotal:       24680000 kB\nMemFree:  1 kB\nMemAvailable:   23000000 kB\n";
        assert_eq!(mem_available(text), Some(23_000_000 * 1024));
        assert_eq!(mem_available("MemAvailable: many kB\n"), None);
        assert_eq!(mem_available(""), None);
        assert_eq!(group_available("1000\n", "700\n", "anon 5\ninactive_file 200\n"), Some(500));
        assert_eq!(group_available("max\n", "700\n", ""), None);
        assert_eq!(group_available("100\n", "700\n", ""), Some(0));
    }

    #[test]
    fn models_beyond_the_machine_are_refused() {
        assert!(refuse(10 << 30, 2, Some(11 << 30)).is_ok() && refuse(u64::MAX, 2, None).is_ok());
        let message = refuse(12 << 30, 2, Some(8 << 30)).unwrap_err().to_string();
        let expected = "the check needs at least 12.00 GiB of memory for 2 samples, and 8.00 GiB are free; \
                        record fewer samples, or check it on a larger machine";
        assert_eq!(message, expected);
        assert!(!refuse(2, 1, Some(1)).unwrap_err().to_string().contains("fewer"));
    }
}
