//! Histograms of values, in TensorBoard's buckets.

use super::proto::Message;

/// The smallest bound of a bucket. `FACTOR` is the ratio of adjacent bounds.
const FIRST: f64 = 1e-12;
const FACTOR: f64 = 1.1;
/// Bounds beyond this are one bucket.
const LAST: f64 = 1e20;

/// Counts of values in buckets, with the bounds of TensorFlow's writer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Histogram {
    pub min: f64,
    pub max: f64,
    pub count: f64,
    pub sum: f64,
    pub squares: f64,
    /// Upper bounds of buckets and their counts. Empty buckets are left out, except one before each full one.
    pub buckets: Vec<(f64, f64)>,
}

impl Histogram {
    /// Counts the finite values. `None` if there are none.
    pub fn of(values: &[f32]) -> Option<Histogram> {
        let finite = || values.iter().copied().filter(|value| value.is_finite()).map(f64::from);
        let (min, max) =
            finite().fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), value| (min.min(value), max.max(value)));
        if min > max {
            return None;
        }
        let bounds = bounds();
        let mut counts = vec![0u64; bounds.len()];
        let (mut count, mut sum, mut squares) = (0u64, 0.0, 0.0);
        for value in finite() {
            let bucket = bounds.partition_point(|&bound| bound <= value).min(bounds.len() - 1);
            counts[bucket] += 1;
            count += 1;
            sum += value;
            squares += value * value;
        }
        let mut buckets = Vec::new();
        for (bucket, &bound) in bounds.iter().enumerate() {
            // TensorBoard reads the bound before a bucket as its lower one.
            let is_before_full = counts.get(bucket + 1).is_some_and(|&next| next > 0);
            if counts[bucket] > 0 || is_before_full {
                buckets.push((bound, counts[bucket] as f64));
            }
        }
        Some(Histogram { min, max, count: count as f64, sum, squares, buckets })
    }

    /// Returns a `HistogramProto`.
    pub fn message(&self) -> Message {
        let (limits, counts): (Vec<f64>, Vec<f64>) = self.buckets.iter().copied().unzip();
        let numbers = [(1, self.min), (2, self.max), (3, self.count), (4, self.sum), (5, self.squares)];
        let message = numbers.into_iter().fold(Message::new(), |message, (field, value)| message.double(field, value));
        message.doubles(6, &limits).doubles(7, &counts)
    }
}

/// Returns the upper bounds of all buckets, in ascending order.
fn bounds() -> Vec<f64> {
    let positive = std::iter::successors(Some(FIRST), |bound| Some(bound * FACTOR)).take_while(|&bound| bound < LAST);
    let positive: Vec<f64> = positive.collect();
    let negative = positive.iter().rev().map(|bound| -bound);
    negative.chain([0.0]).chain(positive.iter().copied()).chain([f64::MAX]).collect()
}

#[cfg(test)]
mod tests {
    use super::Histogram;

    #[test]
    fn values_lie_in_their_buckets() {
        let values = [0.5, 0.5, -2.0, 0.0, f32::NAN, f32::INFINITY, 3e30];
        let histogram = Histogram::of(&values).unwrap();
        assert_eq!((histogram.min, histogram.max, histogram.count), (-2.0, f64::from(3e30_f32), 5.0));
        assert_eq!(histogram.buckets.iter().map(|bucket| bucket.1).sum::<f64>(), 5.0);
        for value in [0.5, -2.0, 0.0] {
            let index = histogram.buckets.iter().position(|&(bound, _)| bound > value).unwrap();
            let (low, (high, count)) = (histogram.buckets[index - 1].0, histogram.buckets[index]);
            assert!(low <= value && value < high && count > 0.0, "{value}: {low} {high} {count}");
        }
        assert_eq!(Histogram::of(&[]), None);
        assert_eq!(Histogram::of(&[f32::NAN]), None);
    }
}
