//! Methods that PyTorch's modules have and networks have not. Each has a bound that nothing meets, whose message says what to call.

use crate::network::Network;
use crate::run::device::Device;
use crate::run::net::Net;

macro_rules! absent {
    ($($trait:ident: $method:ident($($argument:ident)?), $message:literal, $label:literal;)*) => {
        $(
            #[doc(hidden)]
            #[diagnostic::on_unimplemented(message = $message, label = $label)]
            pub trait $trait {}
        )*

        impl<N: Network, D: Device> Net<N, D> {
            $(
                #[doc(hidden)]
                pub fn $method<$($argument)?>(&mut self $(, _: $argument)?)
                where
                    N: $trait,
                {
                }
            )*
        }
    };
}

absent! {
    Saves: save(P), "a network writes no files", "write what `tensors()` names and `get` reads; the guide `save_resume_serve` has the program";
    HasStateDict: state_dict(), "a network has no `state_dict`", "`tensors()` names all that lasts, and `get` reads one by its name";
    LoadsStateDict: load_state_dict(P), "a network has no `load_state_dict`", "`set` sets one tensor by its name; the guide `save_resume_serve` reads a file";
    HasRate: lr(), "a network does not say its learning rate", "it is `lr` in the optimizer of `TRAIN`, or what `set_lr` has set since";
    HasModes: eval(), "a network has no modes", "`forward` and `eval_loss` use running statistics and no dropout, `train_step` trains";
    HasTrainingMode: train(), "a network has no modes", "`train_step` trains, `forward` and `eval_loss` use running statistics and no dropout";
}
