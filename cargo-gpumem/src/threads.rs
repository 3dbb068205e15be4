//! Work that several threads share.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{available_parallelism, scope};

/// Calls `work` with each number below `count`, several at once. Returns what it returned, in order.
pub fn at_once<T: Send>(count: usize, work: &(impl Fn(usize) -> T + Sync + ?Sized)) -> Vec<T> {
    let threads = available_parallelism().map_or(1, usize::from).min(count.max(1));
    let next = AtomicUsize::new(0);
    let share = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return done;
            }
            done.push((index, work(index)));
        }
    };
    let mut all = scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(share)).collect();
        let mut all = share();
        for other in others {
            match other.join() {
                Ok(done) => all.extend(done),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    });
    all.sort_by_key(|(index, _)| *index);
    all.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::at_once;

    #[test]
    fn results_are_in_order() {
        assert_eq!(at_once(100, &|index| index * index), (0..100).map(|index| index * index).collect::<Vec<_>>());
        assert_eq!(at_once(0, &|index| index), Vec::<usize>::new());
    }
}
