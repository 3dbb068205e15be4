//! Pages for users of the crate. Their programs are compiled and run as tests; fragments of programs are not.
//!
//! | page | is about |
//! | --- | --- |
//! | [`porting`] | a PyTorch module beside its network, a table of names, what differs, weights in and out |
//! | [`layers_of_your_own`] | a formula, functions for the CPU and for cards, what only counts |
//! | [`your_own_data`] | data sets, the loader, the trainer, the last batch, fine-tuning, devices and threads |
//! | [`save_resume_serve`] | states of a training, exact resume, files of weights, inference alone, a server |
//! | [`ci`] | the fit check of a pull request |
//! | [`cards`](mod@cards) | usable memory and where it comes from, and what is not counted |

// Links in the files point to files. Since the first definition of a link counts, the definitions here redirect them to pages.
/// [base]: https://github.com/gpumem/gpumem/blob/HEAD/docs/making-it-fit.md#a-base-of-8-or-4-bits
/// [chunks]: https://github.com/gpumem/gpumem/blob/HEAD/docs/making-it-fit.md#logits-in-chunks
/// [low-rank]: https://github.com/gpumem/gpumem/blob/HEAD/docs/making-it-fit.md#low-rank-fine-tuning
/// [states-of-8-bits]: https://github.com/gpumem/gpumem/blob/HEAD/docs/memory-model.md#optimizer-states-of-8-bits
/// [weights]: crate::guide::save_resume_serve#weights-in-files
/// [through-cudnn]: https://github.com/gpumem/gpumem/blob/HEAD/docs/memory-model.md#what-recurrent-layers-cost-through-cudnn
#[doc = ""]
#[doc = include_str!("../docs/porting.md")]
pub mod porting {}

#[doc = include_str!("../docs/layers-of-your-own.md")]
pub mod layers_of_your_own {}

/// [finetune]: https://github.com/gpumem/gpumem/blob/HEAD/gpumem-zoo/examples/finetune_resnet18.rs
/// [fit]: https://github.com/gpumem/gpumem/blob/HEAD/docs/making-it-fit.md
#[doc = ""]
#[cfg_attr(feature = "train", doc = include_str!("../docs/your-own-data.md"))]
#[cfg_attr(not(feature = "train"), doc = "This page is part of the documentation with the feature `train`.")]
pub mod your_own_data {}

/// [base]: https://github.com/gpumem/gpumem/blob/HEAD/docs/making-it-fit.md#a-base-of-8-or-4-bits
/// [data]: crate::guide::your_own_data
/// [porting]: crate::guide::porting
/// [server]: https://github.com/gpumem/gpumem/blob/HEAD/examples/serve/src/lib.rs
#[doc = ""]
#[doc = include_str!("../docs/save-resume-serve.md")]
pub mod save_resume_serve {}

#[doc = include_str!("../docs/ci.md")]
pub mod ci {}

/// [memory-model]: https://github.com/gpumem/gpumem/blob/HEAD/docs/memory-model.md
/// [gpu-results]: https://github.com/gpumem/gpumem/blob/HEAD/docs/gpu-results.md
#[doc = ""]
#[doc = include_str!("../docs/cards.md")]
pub mod cards {}
