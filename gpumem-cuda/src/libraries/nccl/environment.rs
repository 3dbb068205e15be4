//! Variables of the environment that NCCL prefers to a communicator's configuration.

use gpumem_core::error::Error;

/// Variables that may add memory to what the configuration allows.
const LARGER: [&str; 10] = [
    "NCCL_MIN_CTAS",
    "NCCL_MAX_CTAS",
    "NCCL_MIN_NCHANNELS",
    "NCCL_NCHANNELS_PER_NET_PEER",
    "NCCL_MIN_P2P_NCHANNELS",
    "NCCL_BUFFSIZE",
    "NCCL_LL_BUFFSIZE",
    "NCCL_LL128_BUFFSIZE",
    "NCCL_NVLS_NCHANNELS",
    "NCCL_NVLS_CHUNKSIZE",
];

/// A function that returns the value of a variable; `None` if it is not set.
type Variables<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Refuses variables that add memory, or let calls wait. With `deterministic`, the algorithm must be named, because the library would choose it by
/// what it measures of the machine.
///
/// # Errors
/// [`Error::Unsupported`] that names the variable and says what to do.
pub(super) fn check_environment(variables: &Variables<'_>, deterministic: bool) -> Result<(), Error> {
    let unsupported = |what: String| Err(Error::Unsupported { device: "CUDA", what });
    let value = |name: &str| variables(name).filter(|value| !value.trim().is_empty());
    if let Some((name, value)) = LARGER.iter().find_map(|&name| Some((name, value(name)?))) {
        return unsupported(format!(
            "`{name}={value}` may give NCCL more memory than the budget of a rank has; unset it, and set `channels` in `TRAIN`"
        ));
    }
    // Without 0 a call that waits for a rank that has gone could not be ended.
    if let Some(value) = value("NCCL_COMM_BLOCKING").filter(|value| value.trim() != "0") {
        return unsupported(format!(
            "`NCCL_COMM_BLOCKING={value}` lets a rank wait for ever for one that has gone; unset it"
        ));
    }
    let algorithms = value("NCCL_ALGO").unwrap_or_default().to_lowercase();
    let is_fixed = !algorithms.is_empty() && !algorithms.contains("nvls") && !algorithms.contains('^');
    if deterministic && !is_fixed {
        return unsupported(
            "`deterministic: true` needs one algorithm for sums over ranks; start all ranks with `NCCL_ALGO=Ring`"
                .into(),
        );
    }
    Ok(())
}
