//! What the driver says of a card's memory from outside of a process: `nvidia-smi`, which comes with the driver. It counts in
//! MiB, and it counts what a context takes, which the process itself cannot see.

use std::process::Command;

/// Bytes taken on a card.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// By everyone.
    pub card: u64,
    /// By this process; unknown where the driver sees other process numbers than the process, as in some containers.
    pub process: Option<u64>,
}

/// What is taken on the first card that CUDA shows, if `nvidia-smi` is there and answers.
pub fn usage() -> Option<Usage> {
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
    let card = visible.split(',').next().filter(|first| !first.is_empty()).unwrap_or("0").to_string();
    let taken = ask(&card, "--query-gpu=memory.used")?;
    let processes = ask(&card, "--query-compute-apps=pid,used_gpu_memory").unwrap_or_default();
    Some(Usage { card: mib(taken.lines().next()?)?, process: of_process(&processes, std::process::id()) })
}

fn ask(card: &str, query: &str) -> Option<String> {
    let output = Command::new("nvidia-smi").args(["-i", card, query, "--format=csv,noheader,nounits"]).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn mib(text: &str) -> Option<u64> {
    text.trim().parse::<u64>().ok().map(|mib| mib << 20)
}

/// The bytes of the process with this number in a list of lines `pid, MiB`.
fn of_process(list: &str, process: u32) -> Option<u64> {
    let fields = list.lines().filter_map(|line| line.split_once(','));
    let mut own = fields.filter(|(number, _)| number.trim().parse() == Ok(process));
    own.find_map(|(_, bytes)| mib(bytes))
}

#[test]
fn lists_are_read() {
    let list = "12, 300\n4711, 1024\n88, [N/A]\n";
    assert_eq!(of_process(list, 4711), Some(1 << 30));
    assert_eq!((of_process(list, 88), of_process(list, 471), of_process("", 1)), (None, None, None));
}
