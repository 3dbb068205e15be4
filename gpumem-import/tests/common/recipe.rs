//! Weights and inputs that follow from a tensor's name and the index of each number, so that no payload has to be kept.

/// Returns 64 bits for each of `count` indices: splitmix64 of the FNV-1a hash of the name and the index.
fn bits(name: &str, count: usize) -> impl Iterator<Item = u64> {
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    (1..=count as u64).map(move |index| {
        let z = hash.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

fn units(name: &str, count: usize) -> impl Iterator<Item = f64> {
    bits(name, count).map(|bits| (bits >> 40) as f64 / f64::from(1 << 23) - 1.0)
}

/// Returns the numbers of a parameter, or of a running statistic. `gain` keeps the size of activations.
pub fn parameter(name: &str, shape: &[u64], gain: f64) -> Vec<f32> {
    let count: u64 = shape.iter().product();
    let of_one = |value: f64| match shape {
        [first, _, rest @ ..] => {
            let gain = if rest.is_empty() { 3.0 } else { gain };
            value * (gain / (count / first) as f64).sqrt()
        }
        _ => {
            let is_factor = matches!(name.rsplit('.').next(), Some("weight" | "running_var"));
            value * 0.1 + if is_factor { 1.0 } else { 0.0 }
        }
    };
    units(name, count as usize).map(|value| of_one(value) as f32).collect()
}

/// Returns the numbers of an input.
pub fn numbers(name: &str, count: usize) -> Vec<f32> {
    units(&format!("input:{name}"), count).map(|value| value as f32).collect()
}

/// Returns the tokens of an input, each below `most`.
pub fn tokens(name: &str, count: usize, most: u64) -> Vec<u32> {
    bits(&format!("input:{name}"), count).map(|bits| (bits % most) as u32).collect()
}
