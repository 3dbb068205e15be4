//! Pages for those who use the crate. Their programs are compiled and run as tests; fragments of a program are not.
//!
//! | page | is about |
//! | --- | --- |
//! | [`first_network`] | from an empty crate to a network that trains, and examples that learn something |
//! | [`language`] | what can be written in a network, its settings, mistakes and reports |
//! | [`porting`] | a PyTorch module beside its network, a table of names, what differs, weights in and out |
//! | [`layers_of_your_own`] | a formula, functions for the CPU and for cards, what only counts |
//! | [`your_own_data`] | data sets, the loader, the trainer, the last batch, fine-tuning, devices and threads |
//! | [`save_resume_serve`] | states of a training, exact resume, files of weights, inference alone, a server |
//! | [`gpu`] | what to install for a card, how to open one, what happens there |
//! | [`ci`] | the fit check of a pull request |
//! | [`cards`](mod@cards) | usable memory and where it comes from, and what is not counted |

// In the files links lead to files. The first definition of a link counts: here it leads to a page.
/// [command]: https://github.com/gpumem/gpumem/blob/HEAD/docs/reference/command.md#new
/// [data]: crate::guide::your_own_data
/// [memory]: https://github.com/gpumem/gpumem/blob/HEAD/docs/guide/where-memory-goes.md
/// [refusal]: https://github.com/gpumem/gpumem/blob/HEAD/docs/guide/reading-a-refusal.md
/// [save]: crate::guide::save_resume_serve
/// [settings]: https://github.com/gpumem/gpumem/blob/HEAD/docs/reference/settings.md
/// [char_gpt]: https://github.com/gpumem/gpumem/blob/HEAD/examples/char_gpt.rs
/// [digits]: https://github.com/gpumem/gpumem/blob/HEAD/examples/digits.rs
/// [distill]: https://github.com/gpumem/gpumem/blob/HEAD/examples/distill.rs
/// [finetune]: https://github.com/gpumem/gpumem/blob/HEAD/examples/finetune.rs
/// [gan]: https://github.com/gpumem/gpumem/blob/HEAD/examples/gan.rs
/// [image_folder]: https://github.com/gpumem/gpumem/blob/HEAD/examples/image_folder.rs
/// [lstm]: https://github.com/gpumem/gpumem/blob/HEAD/examples/lstm.rs
/// [unet]: https://github.com/gpumem/gpumem/blob/HEAD/examples/unet.rs
/// [vae]: https://github.com/gpumem/gpumem/blob/HEAD/examples/vae.rs
/// [vit]: https://github.com/gpumem/gpumem/blob/HEAD/examples/vit.rs
#[doc = ""]
#[doc = include_str!("../docs/guide/first-network.md")]
pub mod first_network {}

/// [cards]: mod@crate::guide::cards
/// [ci]: crate::guide::ci
/// [command]: https://github.com/gpumem/gpumem/blob/HEAD/docs/reference/command.md
/// [environment]: https://github.com/gpumem/gpumem/blob/HEAD/docs/reference/environment.md
/// [fit]: https://github.com/gpumem/gpumem/blob/HEAD/docs/guide/making-it-fit.md
/// [frozen]: https://github.com/gpumem/gpumem/blob/HEAD/docs/guide/making-it-fit.md#frozen-parts
/// [low-rank]: https://github.com/gpumem/gpumem/blob/HEAD/docs/guide/making-it-fit.md#low-rank-fine-tuning
/// [porting]: crate::guide::porting
/// [serving]: crate::guide::save_resume_serve#serving
/// [settings]: https://github.com/gpumem/gpumem/blob/HEAD/docs/reference/settings.md
#[doc = ""]
#[doc = include_str!("../docs/guide/language.md")]
pub mod language {}

/// [base]: https://github.com/gpumem/gpumem/blob/HEAD/docs/guide/making-it-fit.md#a-base-of-8-or-4-bits
/// [chunks]: https://github.com/gpumem/gpumem/blob/HEAD/docs/guide/making-it-fit.md#logits-in-chunks
/// [frozen]: https://github.com/gpumem/gpumem/blob/HEAD/docs/guide/making-it-fit.md#frozen-parts
/// [low-rank]: https://github.com/gpumem/gpumem/blob/HEAD/docs/guide/making-it-fit.md#low-rank-fine-tuning
/// [states-of-8-bits]: https://github.com/gpumem/gpumem/blob/HEAD/docs/reference/memory-model.md#optimizer-states-of-8-bits
/// [weights]: crate::guide::save_resume_serve#weights-in-files
/// [through-cudnn]: https://github.com/gpumem/gpumem/blob/HEAD/docs/reference/memory-model.md#what-recurrent-layers-cost-through-cudnn
#[doc = ""]
#[doc = include_str!("../docs/guide/porting.md")]
pub mod porting {}

#[doc = include_str!("../docs/guide/layers-of-your-own.md")]
pub mod layers_of_your_own {}

/// [finetune]: https://github.com/gpumem/gpumem/blob/HEAD/gpumem-zoo/examples/finetune_resnet18.rs
/// [distill]: https://github.com/gpumem/gpumem/blob/HEAD/examples/distill.rs
/// [fit]: https://github.com/gpumem/gpumem/blob/HEAD/docs/guide/making-it-fit.md
#[doc = ""]
#[cfg_attr(feature = "train", doc = include_str!("../docs/guide/your-own-data.md"))]
#[cfg_attr(not(feature = "train"), doc = "This page is part of the documentation with the feature `train`.")]
pub mod your_own_data {}

/// [base]: https://github.com/gpumem/gpumem/blob/HEAD/docs/guide/making-it-fit.md#a-base-of-8-or-4-bits
/// [data]: crate::guide::your_own_data
/// [porting]: crate::guide::porting
/// [server]: https://github.com/gpumem/gpumem/blob/HEAD/examples/serve/src/lib.rs
#[doc = ""]
#[doc = include_str!("../docs/guide/save-resume-serve.md")]
pub mod save_resume_serve {}

/// [first]: crate::guide::first_network
/// [debt]: https://github.com/gpumem/gpumem/blob/HEAD/docs/lab/gpu-debt.md
/// [environment]: https://github.com/gpumem/gpumem/blob/HEAD/docs/reference/environment.md
/// [results]: https://github.com/gpumem/gpumem/blob/HEAD/docs/lab/gpu-results.md
#[doc = ""]
#[doc = include_str!("../docs/guide/gpu.md")]
pub mod gpu {}

/// [check-costs]: https://github.com/gpumem/gpumem/blob/HEAD/docs/reference/exactness.md#what-the-check-costs
#[doc = ""]
#[doc = include_str!("../docs/guide/ci.md")]
pub mod ci {}

/// [memory-model]: https://github.com/gpumem/gpumem/blob/HEAD/docs/reference/memory-model.md
/// [gpu-results]: https://github.com/gpumem/gpumem/blob/HEAD/docs/lab/gpu-results.md
#[doc = ""]
#[doc = include_str!("../docs/reference/cards.md")]
pub mod cards {}
