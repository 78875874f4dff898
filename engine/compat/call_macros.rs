//! What a row's function does to let its nodes know of the call: the macros that name the step, and tell its arguments.

/// The name of what is recorded from here on, with two bits for each argument behind `input`, the last one's lowest, and whether
/// the row is one that piecewise_linear.
macro_rules! naming {
    ([$($flag:ident)*] $name:ident $(, $p:ident: $k:ident)*) => {{
        #[allow(unused_mut)]
        let mut given = 0u64;
        $(given = (given << 2) | $crate::compat::call_macros::mark!($k $p);)*
        let given = given | const { $crate::autograd::piecewise_linear($crate::ops::macros::has!(piecewise_linear [$($flag)*])) };
        match const { $crate::ops::macros::has!(steps [$($flag)*]) } {
            true => $crate::autograd::OpScope::steps(),
            false => $crate::autograd::OpScope::of($crate::ops::macros::plain(stringify!($name)), given),
        }
    }};
}

/// What an argument says of which of PyTorch's overloads was called: 0 where it was not given. Tensors are 1, numbers in
/// a tensor's place 2; one dimension is 1, several are 2.
macro_rules! mark {
    (Operand $p:ident) => {
        $p.mark()
    };
    (OptOperand $p:ident) => {
        $p.map_or(0, |p| p.mark())
    };
    (OptDims $p:ident) => {
        $p.map_or(0, |dims| if dims.len() == 1 { 1 } else { 2 })
    };
    (OptDim $p:ident) => {
        u64::from($p.is_some())
    };
    (OptNumber $p:ident) => {
        u64::from($p.is_some())
    };
    (OptText $p:ident) => {
        u64::from($p.is_some())
    };
    (OptTensor $p:ident) => {
        u64::from($p.is_some())
    };
    (Int $p:ident) => {
        u64::from($p != 0)
    };
    (Sections $p:ident) => {
        u64::from(matches!($p, $crate::ops::Sections::List(_)))
    };
    (SomeOperand $p:ident) => {
        $crate::compat::call_macros::mark!(OptOperand $p)
    };
    (SomeDims $p:ident) => {
        $crate::compat::call_macros::mark!(OptDims $p)
    };
    (SomeDim $p:ident) => {
        $crate::compat::call_macros::mark!(OptDim $p)
    };
    (SomeNumber $p:ident) => {
        $crate::compat::call_macros::mark!(OptNumber $p)
    };
    (SomeText $p:ident) => {
        $crate::compat::call_macros::mark!(OptText $p)
    };
    (SomeTensor $p:ident) => {
        $crate::compat::call_macros::mark!(OptTensor $p)
    };
    ($other:ident $p:ident) => {
        0
    };
}

/// Tells the nodes of `$made` the arguments of the op's row, where no other op has called it; of an op that is made of
/// others also the first tensor's sizes, which its nodes do not have.
macro_rules! tell_call {
    ($made:ident $ret:ident $naming:ident $name:ident [$($input:ident)?] $(($p:ident $k:ident $($d:expr)?))*) => {
        if $naming.is_outermost() && let Ok(made) = &$made {
            #[allow(dead_code)]
            const COMPOSITE: bool = !schema::$name.primitive;
            const NAMED: bool = $crate::ops::macros::has!(Named [$ret]);
            $crate::compat::saved_attributes::tell(made, NAMED, $crate::ops::macros::plain(stringify!($name)), COMPOSITE, |tensors| {
                #[allow(unused_mut)]
                let mut told = $crate::compat::saved_attributes::SavedAttributes::new();
                $(if tensors {
                    use $crate::compat::saved_attributes::{SavedArg, SavedAttribute};
                    let sizes = $input.shape().iter().map(|&n| n as i64).collect();
                    told.push(("self_sym_sizes", SavedAttribute::Arg(SavedArg::Ints(sizes))));
                    told.push(("self", $crate::compat::saved_attributes::argument($input)));
                })?
                if tensors {
                    $($crate::compat::call_macros::tell_tensor!{ told $p $k })*
                }
                $($crate::compat::call_macros::tell_argument!{ told $p $k $($d)? })*
                told
            });
        }
    };
}

/// One argument, where it is a tensor or several. `None` is told too.
macro_rules! tell_tensor {
    ($told:ident $p:ident Tensor) => {
        $told.push(($crate::ops::macros::plain(stringify!($p)), $crate::compat::saved_attributes::argument($p)))
    };
    ($told:ident $p:ident OptTensor) => {
        $told.push((
            $crate::ops::macros::plain(stringify!($p)),
            match $p {
                Some(t) => $crate::compat::saved_attributes::argument(t),
                None => $crate::compat::saved_attributes::SavedAttribute::Arg($crate::autograd::SavedArg::Nothing),
            },
        ))
    };
    ($told:ident $p:ident SomeTensor) => {
        $crate::compat::call_macros::tell_tensor! { $told $p OptTensor }
    };
    ($told:ident $p:ident Operand) => {
        if let $crate::ops::Operand::Tensor(t) = $p {
            $told.push(($crate::ops::macros::plain(stringify!($p)), $crate::compat::saved_attributes::operand(t)));
        }
    };
    ($told:ident $p:ident OptOperand) => {
        if let Some($crate::ops::Operand::Tensor(t)) = $p {
            $told.push(($crate::ops::macros::plain(stringify!($p)), $crate::compat::saved_attributes::operand(t)));
        }
    };
    ($told:ident $p:ident SomeOperand) => {
        $crate::compat::call_macros::tell_tensor! { $told $p OptOperand }
    };
    // They have no name each.
    ($told:ident $p:ident Tensors) => {
        $told.extend($p.iter().map(|t| ("", $crate::compat::saved_attributes::argument(t))))
    };
    ($told:ident $p:ident $other:ident) => {};
}

/// One argument, unless it is a tensor or the default.
macro_rules! tell_argument {
    ($told:ident other Operand) => {};
    ($told:ident $p:ident Operand $($d:expr)?) => { $crate::compat::call_macros::tell_argument!{ @tell $told $p } };
    ($told:ident $p:ident OptOperand $d:expr) => {
        if $p.is_some() {
            $crate::compat::call_macros::tell_argument!{ @tell $told $p }
        }
    };
    ($told:ident $p:ident Number $d:expr) => {
        if $p != $crate::Scalar::from($d) {
            $crate::compat::call_macros::tell_argument!{ @tell $told $p }
        }
    };
    ($told:ident $p:ident Sections) => { $crate::compat::call_macros::tell_argument!{ @tell $told $p } };
    ($told:ident $p:ident Number) => { $crate::compat::call_macros::tell_argument!{ @tell $told $p } };
    ($told:ident $p:ident Bool $($d:expr)?) => { $crate::compat::call_macros::tell_argument!{ @plain $told $p $($d)? } };
    ($told:ident $p:ident Whether $($d:expr)?) => { $crate::compat::call_macros::tell_argument!{ @plain $told $p $($d)? } };
    ($told:ident $p:ident Int $($d:expr)?) => { $crate::compat::call_macros::tell_argument!{ @plain $told $p $($d)? } };
    ($told:ident $p:ident Float $($d:expr)?) => { $crate::compat::call_macros::tell_argument!{ @plain $told $p $($d)? } };
    ($told:ident $p:ident Dim $($d:expr)?) => { $crate::compat::call_macros::tell_argument!{ @plain $told $p $($d)? } };
    ($told:ident $p:ident Dims $($d:expr)?) => { $crate::compat::call_macros::tell_argument!{ @plain $told $p $($d)? } };
    ($told:ident $p:ident Sizes $($d:expr)?) => { $crate::compat::call_macros::tell_argument!{ @plain $told $p $($d)? } };
    ($told:ident $p:ident Text $($d:expr)?) => { $crate::compat::call_macros::tell_argument!{ @plain $told $p $($d)? } };
    ($told:ident $p:ident Start $($d:expr)?) => { $crate::compat::call_macros::tell_argument!{ @plain $told $p $($d)? } };
    ($told:ident $p:ident OptNumber $($d:expr)?) => { $crate::compat::call_macros::tell_argument!{ @plain $told $p $($d)? } };
    ($told:ident $p:ident OptInt $($d:expr)?) => { $crate::compat::call_macros::tell_argument!{ @plain $told $p $($d)? } };
    ($told:ident $p:ident OptFloat $($d:expr)?) => { $crate::compat::call_macros::tell_argument!{ @plain $told $p $($d)? } };
    ($told:ident $p:ident OptDim $($d:expr)?) => { $crate::compat::call_macros::tell_argument!{ @plain $told $p $($d)? } };
    ($told:ident $p:ident OptDims $($d:expr)?) => { $crate::compat::call_macros::tell_argument!{ @plain $told $p $($d)? } };
    ($told:ident $p:ident OptText $($d:expr)?) => { $crate::compat::call_macros::tell_argument!{ @plain $told $p $($d)? } };
    ($told:ident $p:ident OptOrder $($d:expr)?) => { $crate::compat::call_macros::tell_argument!{ @plain $told $p $($d)? } };
    ($told:ident $p:ident SomeOperand $($d:expr)?) => { $crate::compat::call_macros::tell_argument!{ $told $p OptOperand $($d)? } };
    ($told:ident $p:ident SomeNumber $($d:expr)?) => { $crate::compat::call_macros::tell_argument!{ $told $p OptNumber $($d)? } };
    ($told:ident $p:ident SomeInt $($d:expr)?) => { $crate::compat::call_macros::tell_argument!{ $told $p OptInt $($d)? } };
    ($told:ident $p:ident SomeDim $($d:expr)?) => { $crate::compat::call_macros::tell_argument!{ $told $p OptDim $($d)? } };
    ($told:ident $p:ident SomeDims $($d:expr)?) => { $crate::compat::call_macros::tell_argument!{ $told $p OptDims $($d)? } };
    ($told:ident $p:ident SomeText $($d:expr)?) => { $crate::compat::call_macros::tell_argument!{ $told $p OptText $($d)? } };
    ($told:ident $p:ident SomeOrder $($d:expr)?) => { $crate::compat::call_macros::tell_argument!{ $told $p OptOrder $($d)? } };
    // Tensors, dtypes, devices, layouts, generators and what else PyTorch's formulas have no need of.
    ($told:ident $p:ident $other:ident $($d:expr)?) => {};
    (@plain $told:ident $p:ident) => { $crate::compat::call_macros::tell_argument!{ @tell $told $p } };
    (@plain $told:ident $p:ident $d:expr) => {
        if $p != $d {
            $crate::compat::call_macros::tell_argument!{ @tell $told $p }
        }
    };
    (@tell $told:ident $p:ident) => {
        $told.extend($crate::compat::saved_attributes::known($crate::ops::macros::plain(stringify!($p)), &$p))
    };
}

pub(crate) use {mark, naming, tell_argument, tell_call, tell_tensor};
