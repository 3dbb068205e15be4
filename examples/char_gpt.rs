//! Trains a small GPT on the letters of a play by Shakespeare, and writes some lines like it: letter by letter, with the keys and values
//! of those before it kept on the device.
//!
//! ```text
//! cargo run --release --example char_gpt
//! cargo run --release --example char_gpt -- --resume FOLDER
//! cargo run --release --example char_gpt -- --steps 100
//! ```
//!
//! With a folder it saves its state there each 100 steps, and goes on from the newest one: exactly, for the texts of a step depend on its
//! number alone.
//!
//! On two ranks, which share each step, in processes of their own or in one:
//!
//! ```text
//! GPUMEM_RANKS=2 cargo build --release --example char_gpt --features mpi
//! mpirun -np 2 target/release/examples/char_gpt
//! target/release/examples/char_gpt --in-process
//! ```

mod shared;
#[cfg(feature = "cpu")]
#[path = "shared/threads.rs"]
mod threads;

use gpumem::prelude::*;
use gpumem::state::{Progress, Saver};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use shared::{Random, warm_and_cosine};
use std::error::Error;
use std::process::ExitCode;

network! {
    /// A GPT of two blocks: of each letter of a text it says which letter comes next.
    pub struct CharGpt;

    const TRAIN: Train = Train {
        batch: 32,
        ranks: 1,
        optimizer: AdamW { lr: 4e-3, weight_decay: 0.1, groups: [Group { paths: "*.bias, *norm*", weight_decay: 0.0 }] },
        loss: CrossEntropy,
        seed: 1,
    };
    // Longer than a text of training: a letter sees the 32 before it, wherever it stands.
    const INFER: Infer = Infer { batch: 1, cache: 1024, chunk: 16 };

    const CONTEXT: usize = 64;
    const LETTERS: usize = 61;

    fn forward(text: Tokens<CONTEXT>) -> TokenLogits<CONTEXT, LETTERS> {
        [Embedding(LETTERS, 96), repeat(2, block(96)), LayerNorm, Linear(LETTERS)]
    }

    fn block(width: usize) -> Block {
        [
            Add([], [LayerNorm, CausalSelfAttention(4, rotary = 10000.0, window = 32)]),
            Add([], [LayerNorm, Linear(4 * width), Gelu, Linear(width)]),
        ]
    }
}

/// Letters that it sees at once, and different letters in the play, as in the network.
const CONTEXT: usize = 64;
const LETTERS: usize = 61;

/// The options of the command line.
struct Options {
    steps: usize,
    folder: Option<String>,
    in_process: bool,
}

impl Options {
    fn read() -> Result<Options, Box<dyn Error>> {
        let mut options = Options { steps: 800, folder: None, in_process: false };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            match (&*argument, (argument != "--in-process").then(|| arguments.next()).flatten()) {
                ("--in-process", _) => options.in_process = true,
                ("--resume", Some(folder)) => options.folder = Some(folder),
                ("--steps", Some(steps)) => options.steps = steps.parse()?,
                _ => {
                    return Err(
                        "expected nothing, or any of `--resume FOLDER`, `--steps NUMBER` and `--in-process`".into()
                    );
                }
            }
        }
        Ok(options)
    }
}

fn main() -> ExitCode {
    shared::shown(start())
}

fn start() -> Result<(), Box<dyn Error>> {
    let ranks = Ranks::from_environment()?;
    let options = Options::read()?;
    #[cfg(feature = "cpu")]
    if options.in_process {
        return threads::in_process(CharGpt::TRAIN.ranks, |ranks, device| run(&options, ranks, device));
    }
    run(&options, &ranks, &AnyDevice::on(&ranks)?)
}

fn run<D: gpumem::Device>(options: &Options, ranks: &Ranks, device: &D) -> Result<(), Box<dyn Error>> {
    let play: Vec<u8> = shared::play()?.into_bytes();
    let mut letters = play.clone();
    letters.sort_unstable();
    letters.dedup();
    if letters.len() != LETTERS {
        return Err(format!("the play has {} letters, and the network {LETTERS}", letters.len()).into());
    }
    let number = |letter: &u8| letters.binary_search(letter).unwrap_or(0) as u32;
    let text: Vec<u32> = play.iter().map(number).collect();
    // The last tenth is held back.
    let (train, test) = text.split_at(text.len() / 10 * 9);

    let mut net = CharGpt::on(device)?;
    let Options { folder, steps, .. } = options;
    let steps = *steps;
    // All ranks read the state, and have the same one later.
    let saver = folder.as_ref().filter(|_| ranks.is_first()).map(Saver::open).transpose()?;
    let mut saver = saver.map(|saver| saver.keep(2));
    let resumed = folder.as_ref().map(|folder| net.resume_if_any(folder)).transpose()?.flatten();
    if let Some(resumed) = resumed.filter(|_| ranks.is_first()) {
        println!("goes on after step {}", resumed.steps);
    }
    let bar = ProgressBar::new(steps as u64).with_style(ProgressStyle::with_template("{bar:40} {msg}  {elapsed}")?);
    if !ranks.is_first() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let mut loss = 0.0;
    let first = net.steps()? as usize;
    bar.set_position(first as u64);
    for step in first..steps {
        net.set_lr(4e-3 * warm_and_cosine(step, steps))?;
        let mut random = Random::new(1000 + step as u64);
        let (texts, next) = batch(ranks, train, || random.below(train.len() - CONTEXT - 1));
        loss = net.train_step(&texts, &next)?;
        bar.inc(1);
        bar.set_message(format!("step {} of {steps}, loss {loss:.3}", step + 1));
        if let Some(saver) = saver.as_mut().filter(|_| (step + 1) % 100 == 0) {
            saver.save(&mut net, &Progress::default())?;
        }
    }
    bar.finish();
    saver.map(|mut saver| saver.wait()).transpose()?;

    // The same texts, whatever the seed of the training.
    let (mut random, mut sum, batches) = (Random::new(3), 0.0, 8);
    for _ in 0..batches {
        let (texts, next) = batch(ranks, test, || random.below(test.len() - CONTEXT - 1));
        sum += net.eval_loss(&texts, &next)?;
    }
    if !ranks.is_first() {
        return Ok(());
    }
    if !ranks.is_alone() {
        println!("{} ranks, loss of the last step {loss}, of held-back text {}", ranks.count(), sum / batches as f32);
    }
    let loss = sum / batches as f32;
    println!("\nheld-back text: {:.3} nats a letter, {:.2} bits\n", loss, loss / std::f32::consts::LN_2);

    let mut writer = CharGpt::infer_on(device)?;
    writer.copy_from(&mut net)?;
    let mut written: Vec<u32> = b"MENENIUS:\n".iter().map(number).collect();
    let prompt = written.clone();
    for next in writer.generate(&[&prompt], |logits| drawn(logits, 0.8, &mut random))?.take(500) {
        written.extend(next?.tokens);
    }
    let written: Vec<u8> = written.iter().map(|&letter| letters[letter as usize]).collect();
    println!("{}", String::from_utf8_lossy(&written));
    Ok(())
}

/// This rank's part of texts that begin where `start` says, and for each letter of them the one after it.
fn batch(
    ranks: &Ranks,
    text: &[u32],
    mut start: impl FnMut() -> usize,
) -> (<CharGpt as Network>::Input, <CharGpt as Network>::Target) {
    let starts: Vec<usize> = (0..CharGpt::TRAIN.batch).map(|_| start()).collect();
    let starts = ranks.part(&starts);
    let at = |index: usize| starts[index / CONTEXT] + index % CONTEXT;
    (Tensor::from_fn(|index| text[at(index)]), Tensor::from_fn(|index| text[at(index) + 1]))
}

/// A letter drawn from what the network says of the one after a text. The lower the temperature, the surer it has to be of it.
fn drawn(logits: &[f32], temperature: f32, random: &mut Random) -> u32 {
    let largest = logits.iter().copied().fold(f32::MIN, f32::max);
    let weights: Vec<f32> = logits.iter().map(|logit| ((logit - largest) / temperature).exp()).collect();
    let mut left = random.uniform() * weights.iter().sum::<f32>();
    let drawn = weights.iter().position(|weight| {
        left -= weight;
        left < 0.0
    });
    drawn.unwrap_or(0) as u32
}
