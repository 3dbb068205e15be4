//! Indices from outside, checked before they reach the card.

use gpumem_core::error::Error;
use gpumem_core::memory::place::Placed;
use gpumem_core::program::Operation;
use gpumem_core::program::indices::Indices;

/// Indices from outside, checked before they reach the card: a kernel that follows one that is too large would read whatever
/// is there.
#[derive(Debug)]
struct IndexCheck {
    offset: u64,
    bytes: u64,
    rule: Indices,
}

impl IndexCheck {
    /// Whether there are as many bytes as it looks at.
    fn fits(&self, bytes: &[u8]) -> bool {
        self.bytes == bytes.len() as u64
    }

    fn run(&self, bytes: &[u8]) -> Result<(), Error> {
        if !self.fits(bytes) {
            let (what, found) = (format!("a batch of {}s", self.rule.what), bytes.len() as u64 / 4);
            return Err(Error::Length { what, expected: self.bytes / 4, found });
        }
        self.rule.check_bytes(bytes)
    }
}

/// The checks of all programs of a session.
#[derive(Debug)]
pub(super) struct IndexChecks(Vec<IndexCheck>);

impl IndexChecks {
    /// Those of programs for so many samples each.
    pub(super) fn new<'p>(programs: impl Iterator<Item = (&'p Placed, u64)>) -> IndexChecks {
        let of = |(placed, batch): (&'p Placed, u64)| {
            placed.program.operations.iter().flat_map(move |operation| checks_of(placed, operation, batch))
        };
        let mut checks: Vec<IndexCheck> = programs.flat_map(of).collect();
        // Where several operations look something up by the same indices, a message names the smallest limit.
        checks.sort_by_key(|check| check.rule.limit);
        IndexChecks(checks)
    }

    /// Whether what is to lie at `offset` can be followed.
    pub(super) fn run(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let here = || self.0.iter().filter(|check| check.offset == offset);
        // Programs of different batches may have their inputs in one place.
        let mut fitting = here().filter(|check| check.fits(bytes)).peekable();
        match fitting.peek() {
            Some(_) => fitting.try_for_each(|check| check.run(bytes)),
            None => here().take(1).try_for_each(|check| check.run(bytes)),
        }
    }
}

fn checks_of(placed: &Placed, operation: &Operation, batch: u64) -> Vec<IndexCheck> {
    let check = |rule: Indices| {
        let id = operation.read(rule.slot)?;
        let bytes = placed.program.tensor(id).elements(batch)?.checked_mul(4)?;
        Some(IndexCheck { offset: placed.offsets[id as usize], bytes, rule })
    };
    operation.indices(&placed.program).into_iter().filter_map(check).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpumem_core::program::Slot;
    use gpumem_core::program::indices::Allowed;

    fn bytes(values: &[u32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn indices_are_checked_before_they_reach_the_card() {
        let rule = Indices { allowed: Allowed::One(255), ..Indices::below(10, "label", Slot::Target, 1) };
        let check = IndexCheck { offset: 0, bytes: 8, rule };
        assert_eq!(check.run(&bytes(&[0, 9])), Ok(()));
        assert_eq!(check.run(&bytes(&[255, 9])), Ok(()));
        let error = check.run(&bytes(&[3, 10])).unwrap_err();
        assert_eq!(error, Error::Index { what: "label", position: 1, value: 10, limit: 10 });
        let error = check.run(&bytes(&[3])).unwrap_err();
        assert_eq!(error.to_string(), "a batch of labels has 2 elements, but 1 were given");
    }
}
